"""What a table is: its columns and their types, its options, and the rules by which records become a row.

Values only: no bytes of rows, no files, no clock. SQL comes in here and leaves as a `TableSchema`. In the order
in which it is best read:

    types.py                 column types
    options.py               every option, declared once; unsupported_options.py: those that are refused by name
    option_kinds.py          what the text of an option may be; durations.py: the grammar of durations
    option_parsing.py        options from their text; options_page.py: their reference page
    table_schema.py          a table's definition as a value, one for each schema id
    key_column_checks.py     which columns a key, or a prefix of one, has to give
    aggregate_functions.py   the list of aggregate functions
    merge_rules.py           options resolved into what happens to each column; hidden columns that rows have for it
    checks.py                refuses definitions that could not work; column_checks.py, merge_checks.py: parts of it
    alter.py                 the next version of a definition
    sql.py                   CREATE TABLE and ALTER TABLE into the above, by the grammar of sql_grammar.py
"""
