# SPDX-License-Identifier: Apache-2.0
"""What must hold for every picture of ulyx_plot, checked in its SVG: it is
well-formed, nothing lies outside, no two texts overlap, and texts within boxes
fit into them. The widths of texts are approximate: those of a wide font."""
import re
import xml.etree.ElementTree as ElementTree

SVG = "{http://www.w3.org/2000/svg}"

# Widths of DejaVu Sans as fractions of the font's size: characters by their
# width.
WIDTHS = {"ijlI'": 0.29, " ,.:;|!()[]frt/-": 0.36, "cszJ": 0.54,
          "agkvxyLTEFXY": 0.61, "mwMW%@→—+=<>~…": 0.9, "CDGHNOQUAVBKR&": 0.74}
OTHER = 0.636


def text_width(text, size, bold):
    shares = sum(next((share for letters, share in WIDTHS.items()
                       if c in letters), OTHER) for c in text)
    return shares * size * (1.12 if bold else 1)


class Box:
    def __init__(self, name, left, top, right, bottom):
        self.name = name
        self.left, self.top, self.right, self.bottom = left, top, right, bottom

        # Where a text is anchored; the text belongs to the rectangle around
        # that point.
        self.held_at = ((left + right) / 2, (top + bottom) / 2)

    def overlaps(self, other, slack=1.5):
        return self.left + slack < other.right and \
            other.left + slack < self.right and \
            self.top + slack < other.bottom and other.top + slack < self.bottom

    def has(self, x, y):
        return self.left <= x <= self.right and self.top <= y <= self.bottom

    @property
    def area(self):
        return (self.right - self.left) * (self.bottom - self.top)

    def __repr__(self):
        return f"{self.name!r} at {self.left:.0f},{self.top:.0f} to " \
            f"{self.right:.0f},{self.bottom:.0f}"


def text_box(element):
    x, y = float(element.get("x")), float(element.get("y"))
    size = float(element.get("font-size"))
    width = text_width(element.text, size, element.get("font-weight") == "bold")
    left = x - {"middle": width / 2, "end": width}.get(
        element.get("text-anchor"), 0)
    if element.get("transform"):  # rotated around x, y
        turned = re.fullmatch(r"rotate\(-90 ([\d.]+) ([\d.]+)\)",
                              element.get("transform"))
        assert turned and float(turned.group(1)) == x, element.get("transform")
        box = Box(element.text, x - 0.75 * size, y - (left - x) - width,
                  x + 0.2 * size, y - (left - x))
    else:
        box = Box(element.text, left, y - 0.75 * size, left + width,
                  y + 0.2 * size)
        inwards = {"middle": 0, "end": -2}.get(element.get("text-anchor"), 2)
        box.held_at = (x + inwards, y - 0.3 * size)
    return box


def shape_box(element):
    tag = element.tag.replace(SVG, "")
    if tag == "rect":
        x, y = float(element.get("x")), float(element.get("y"))
        return Box(tag, x, y, x + float(element.get("width")),
                   y + float(element.get("height")))
    if tag == "circle":
        x, y, r = (float(element.get(name)) for name in ("cx", "cy", "r"))
        return Box(tag, x - r, y - r, x + r, y + r)
    numbers = [float(n) for n in re.findall(
        r"-?[\d.]+", element.get("d") or element.get("points"))]
    return Box(tag, min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]),
               max(numbers[1::2]))


class Picture:
    """Describes the faults in words; a good picture has none."""

    def __init__(self, svg):
        self.root = ElementTree.fromstring(svg)
        self.elements = [e for e in self.root.iter()
                         if e.tag not in (SVG + "svg", SVG + "title",
                                          SVG + "desc")]
        self.texts = [text_box(e) for e in self.elements
                      if e.tag == SVG + "text"]
        self.shapes = [shape_box(e) for e in self.elements
                       if e.tag != SVG + "text"]
        self.rects = [shape_box(e) for e in self.elements
                      if e.tag == SVG + "rect"]

    @property
    def words(self):
        return [box.name for box in self.texts]

    def faults(self):
        return [*self._page(), *self._outside(), *self._overlaps(),
                *self._clipped()]

    def _page(self):
        x, y, width, height = map(float, self.root.get("viewBox").split())
        if (x, y) != (0, 0) or width != float(self.root.get("width")) or \
                height != float(self.root.get("height")):
            yield "the viewBox is not the page"
        if not self.root.findtext(SVG + "title"):
            yield "no title"
        self.page = Box("page", 0, 0, width, height)

    def _outside(self):
        for box in (*self.texts, *self.shapes):
            if box.left < -0.01 or box.top < -0.01 or \
                    box.right > self.page.right + 0.01 or \
                    box.bottom > self.page.bottom + 0.01:
                yield f"outside the page: {box}"

    def _overlaps(self):
        ordered = sorted(self.texts, key=lambda box: box.top)
        for i, one in enumerate(ordered):
            for other in ordered[i + 1:]:
                if other.top >= one.bottom:
                    break
                if one.overlaps(other):
                    yield f"overlap: {one} and {other}"

    def _clipped(self):
        for text in self.texts:
            around = [rect for rect in self.rects if rect.has(*text.held_at)]
            box = min(around, key=lambda rect: rect.area, default=self.page)
            if text.left < box.left - 2 or text.right > box.right + 2 or \
                    text.top < box.top - 2 or text.bottom > box.bottom + 2:
                yield f"does not fit: {text} into {box}"
