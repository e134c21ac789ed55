package org.apache.iceberg.rest;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;
import org.apache.iceberg.inmemory.InMemoryCatalog;
import org.apache.iceberg.rest.responses.ErrorResponse;
import org.apache.iceberg.util.Pair;

/**
 * A REST catalog by Iceberg's own adapter, which is what it tests its REST client with, over the JDK's HTTP server.
 *
 * <p>Arguments: the port, and where tables are. What a catalog keeps itself is in memory; data and manifests are the
 * clients'. In this package, as the adapter's routes are private to it.
 */
public final class CatalogServer {
    private CatalogServer() {}

    public static void main(String[] arguments) throws IOException {
        InMemoryCatalog catalog = new InMemoryCatalog();
        catalog.initialize("catalog", Map.of("warehouse", arguments[1]));
        RESTCatalogAdapter adapter = new RESTCatalogAdapter(catalog);
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), 0);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/", exchange -> answer(adapter, exchange));
        server.start();
    }

    private static void answer(RESTCatalogAdapter adapter, HttpExchange exchange) throws IOException {
        int code = 200;
        byte[] content = new byte[0];
        try {
            Object found = handle(adapter, exchange);
            if (found == null) {
                code = 204;
            } else {
                content = RESTObjectMapper.mapper().writeValueAsBytes(found);
            }
        } catch (Exception error) {
            ErrorResponse.Builder told = ErrorResponse.builder();
            RESTCatalogAdapter.configureResponseFromException(error, told);
            ErrorResponse response = told.build();
            code = response.code();
            content = RESTObjectMapper.mapper().writeValueAsBytes(response);
        }
        exchange.getResponseHeaders().set("Content-Type", "application/json");
        boolean isBare = content.length == 0 || exchange.getRequestMethod().equals("HEAD");
        exchange.sendResponseHeaders(code, isBare ? -1 : content.length);
        if (!isBare) {
            exchange.getResponseBody().write(content);
        }
        exchange.close();
    }

    private static Object handle(RESTCatalogAdapter adapter, HttpExchange exchange) throws IOException {
        HTTPRequest.HTTPMethod method = HTTPRequest.HTTPMethod.valueOf(exchange.getRequestMethod());
        String path = exchange.getRequestURI().getRawPath().substring(1);
        Pair<RESTCatalogAdapter.Route, Map<String, String>> route = RESTCatalogAdapter.Route.from(method, path);
        if (route == null) {
            throw new IllegalArgumentException("no route: " + method + " " + path);
        }
        Map<String, String> variables = new HashMap<>(route.second());
        String query = exchange.getRequestURI().getRawQuery();
        for (String one : query == null ? new String[0] : query.split("&")) {
            String[] parts = one.split("=", 2);
            variables.put(parts[0], URLDecoder.decode(parts[parts.length - 1], StandardCharsets.UTF_8));
        }
        Class<? extends RESTRequest> kind = route.first().requestClass();
        Object body = kind == null ? null : RESTObjectMapper.mapper().readValue(exchange.getRequestBody(), kind);
        return adapter.handleRequest(route.first(), variables, body, route.first().responseClass());
    }
}
