"""Cycles in a directed graph: its strongly connected components of more than one node (Tarjan)."""

from collections.abc import Iterator, Mapping


def cycles_in(graph: Mapping[int, set[int]]) -> list[list[int]]:
    """The nodes of each group in which every node leads to every other one.

    Without recursion: a history is a chain of many thousands.
    """
    search = _Search(graph)
    for node in list(graph):
        if node not in search.index:
            search.walk(node)
    return search.found


class _Search:
    """Tarjan's algorithm, its stack of calls kept by hand."""

    def __init__(self, graph: Mapping[int, set[int]]) -> None:
        self.index: dict[int, int] = {}
        self.found: list[list[int]] = []
        self._graph = graph
        self._low: dict[int, int] = {}
        self._path: list[int] = []
        self._on_path: set[int] = set()

    def walk(self, root: int) -> None:
        """Find all that is connected below a node."""
        calls: list[tuple[int, Iterator[int]]] = [(root, self._enter(root))]
        while calls:
            node, followers = calls[-1]
            for follower in followers:
                if follower not in self.index:
                    calls.append((follower, self._enter(follower)))
                    break
                if follower in self._on_path:
                    self._low[node] = min(self._low[node], self.index[follower])
            else:
                calls.pop()
                if calls:
                    above = calls[-1][0]
                    self._low[above] = min(self._low[above], self._low[node])
                if self._low[node] == self.index[node]:
                    self._close(node)

    def _enter(self, node: int) -> Iterator[int]:
        self.index[node] = self._low[node] = len(self.index)
        self._path.append(node)
        self._on_path.add(node)
        return iter(self._graph.get(node, ()))

    def _close(self, node: int) -> None:
        """The component whose first node this is lies on top of the path."""
        component = []
        while node in self._on_path:
            last = self._path.pop()
            self._on_path.remove(last)
            component.append(last)
        if len(component) > 1:
            self.found.append(component)
