"""Which two answers a page opens on."""

from bench.reports.render import opening

EAGLE = ["drafter=eagle3", "drafter.total=16"]
ROWS = [
    ["method=ar"],
    ["method=sps"],
    [*EAGLE, "rule=lossless"],
    [*EAGLE, "rule=mars"],
    ["method=fsd"],
]


def test_lossless_decoding_stands_beside_the_papers_rule_on_its_drafter(hydra):
    cells = [hydra.point(row).cell for row in ROWS]
    assert opening(cells, {"mars"}) == (2, 3)
    assert opening(cells, {"fsd"}) == (1, 4)
    assert opening(cells, ()) == (2, 3), "the first rule that may change the text"
    assert opening(cells[:3], {"mars"}) == (2, 1), "none does"
    assert opening(cells[:1], {"mars"}) == (0, 0)
