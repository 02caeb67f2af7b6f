"""Requests to answers. Hot routes are plain ASGI, or answered in the protocol where their bytes arrive; the others are
FastAPI's.

uvicorn_protocol.py, uvicorn_config.py   the connection; point lookups are answered in it by fast_lookup.py
asgi.py                                  bodies, errors and headers of plain ASGI routes
hot_route.py                             what hot routes share: bodies in, parts out, counts, problems
lookup_routes.py, insert_route.py        the hot routes, in JSON; arrow_bodies.py: in Arrow
row_cache.py                             rows of inserts that are asked for again and again
table_json.py, openapi.py                tables as JSON; the OpenAPI page, its openapi_examples.py
metrics_page.py                          counts and tables, as Prometheus reads them
"""
