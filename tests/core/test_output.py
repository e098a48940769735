"""Lines of CSV."""

import csv
import io

from ddh._core.output import csv_line


def test_no_cell_is_a_formula_for_a_spreadsheet():
    cells = [
        "=1+1",
        "+1",
        "-1",
        "@x",
        "\tx",
        "\rx",
        "a=b",
        'with "quotes", commas',
        "",
        -1,
        None,
        True,
    ]
    (read,) = csv.reader(io.StringIO(csv_line(cells), newline=""))
    assert read[:6] == ["'=1+1", "'+1", "'-1", "'@x", "'\tx", "'\rx"]
    assert read[6:] == ["a=b", 'with "quotes", commas', "", "-1", "", "True"]
