"""Examples in the help of each command, without the name of the program.

Imported only for help.
"""

from typing import Final

EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "": ("serve --override num.partitions=3", "topics list -b kafka.example.com:9092"),
    "serve": (
        "serve --config server.properties",
        "serve --port 9192 --data /tmp/kohort",
    ),
    "status": ("status", "status -b kafka.example.com:9092 --wait 1m --json"),
    "topics list": ("topics list --internal",),
    "topics describe": ("topics describe orders", "topics describe 'orders*' --all-configs"),
    "topics create": ("topics create orders --partitions 6 --config retention.ms=86400000",),
    "topics alter": ("topics alter orders --partitions 12 --delete-config retention.ms",),
    "topics trim": (
        "topics trim orders --by-duration 7d --dry-run",
        "topics trim orders:0,2 --to-offset 1000",
    ),
    "topics delete": ("topics delete orders payments --if-exists",),
    "produce": (
        "produce orders --file lines.txt --key-separator : --compression zstd",
        "produce orders --key customer-7 --header source=import",
    ),
    "consume": (
        "consume orders --from-beginning --exit",
        "consume 'orders*' --last 10m --format '%d %t-%p:%o %k %s\\n'",
        "consume orders --offset 100 --to-offset 200 --partition 0 --json",
    ),
    "groups list": ("groups list --json",),
    "groups describe": ("groups describe billing", "groups describe 'billing-*'"),
    "groups why": (
        "groups why billing -b kohort.example.com:9092",
        "groups why billing --last 5 --avoided",
        "groups why billing --from server.log.gz",
    ),
    "groups advise": ("groups advise billing", "groups advise billing --from history.jsonl"),
    "groups report": ("groups report billing --output billing.html",),
    "groups timeline": ("groups timeline billing --last 3 --members 40",),
    "groups reset-offsets": (
        "groups reset-offsets billing --topic orders --by-duration 1h",
        "groups reset-offsets billing --topic orders:0,2 --to-earliest --execute",
    ),
    "groups delete-offsets": ("groups delete-offsets billing --topic old-orders",),
    "groups delete": ("groups delete billing",),
    "watch": (
        "watch -b kafka.example.com:9092 --history /var/lib/kohort-watch",
        "watch --once --group billing --last 10",
    ),
    "transactions list": ("transactions list --state Ongoing --open-for 10m",),
    "transactions describe": ("transactions describe payments-1",),
    "transactions why": ("transactions why orders 0",),
    "transactions abort": ("transactions abort orders 0 4711",),
    "acl list": ("acl list --resource topic:orders --matching",),
    "acl add": (
        "acl add alice read describe topic:orders",
        "acl add alice read group:billing- --prefixed",
    ),
    "acl remove": ("acl remove --principal alice --resource topic:orders",),
    "acl check": ("acl check alice write topic:orders --super-users User:admin",),
    "quotas list": ("quotas list",),
    "quotas set": ("quotas set producer_byte_rate=1048576 --user alice --default-client-id",),
    "quotas remove": ("quotas remove --user alice --default-client-id",),
    "users list": ("users list",),
    "users add": ("users add alice --mechanism SCRAM-SHA-512",),
    "users password": ("users password alice --password-fd 0 < new-password",),
    "users hash": ("users hash alice >> users.txt",),
    "users disable": ("users disable alice --disconnect",),
    "users enable": ("users enable alice",),
    "users remove": ("users remove alice",),
    "config list": ("config list session timeout", "config list --topics retention"),
    "config check": ("config check --config server.properties",),
    "config get": ("config get", "config get --topic orders retention.ms cleanup.policy"),
    "config set": (
        "config set retention.ms=3600000 --topic orders",
        "config set max.connections=500 --broker 1 --dry-run",
    ),
    "config delete": ("config delete retention.ms --topic orders",),
    "export-kafka": ("export-kafka /var/lib/kohort --dry-run",),
    "import-kafka": ("import-kafka /var/lib/kafka/data --dry-run",),
    "doctor": ("doctor --config server.properties",),
    "dump-log": ("dump-log --records data/orders-0/00000000000000000000.log",),
    "completion": ("completion fish > ~/.config/fish/completions/kohort.fish",),
    "testing serve": ("testing serve --control 9099",),
    "pipeline land": ("pipeline land orders --lake /data/lake --available-now",),
    "pipeline rebalances": ("pipeline rebalances --lake /data/lake --available-now",),
    "pipeline advise": ("pipeline advise --lake /data/lake",),
    "pipeline report": ("pipeline report --lake /data/lake --output report.html",),
    "pipeline tidy": ("pipeline tidy --lake /data/lake",),
    "pipeline convert-log": ("pipeline convert-log server.log history.jsonl",),
    "pipeline jars": ("pipeline jars",),
    "pipeline py-files": ("pipeline py-files kohort.zip",),
}


def examples_text(prog: str) -> str:
    """Return a command's examples by its parser's name, such as ``kohort topics list``; or ""."""
    program, _, command = prog.partition(" ")
    lines = [f"  {program} {example}\n" for example in EXAMPLES.get(command, ())]
    return f"\nExamples:\n{''.join(lines)}" if lines else ""
