"""What a table is: its columns and their types, its options, and the rules by which records become a row.

Values only: no bytes of rows, no files, no clock. SQL comes in here and leaves as a `TableSchema`.

    types.py                 column types
    table_schema.py          a table's definition as a value, one for each schema id
    key_columns.py           which columns a key, or a prefix of one, has to give
    options.py               every option, declared once; unsupported_options.py: those that are refused by name
    option_kinds.py          what the text of an option may be, by durations.py among others
    option_parsing.py        options from their text; options_page.py: their reference page
    aggregate_functions.py   the list of aggregate functions
    merge_rules.py           options resolved into what happens to each column; hidden columns that rows have for it
    checks.py                refuses definitions that could not work
    alter.py                 the next version of a definition
    sql.py                   CREATE TABLE and ALTER TABLE into the above, by the grammar of sql_grammar.py
"""
