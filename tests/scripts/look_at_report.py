#!/usr/bin/env python3
"""Opens a report in headless Chromium, light and dark, on a phone and on a desk, and saves pictures to look at.

  tests/scripts/look_at_report.py RUN/report.html --out FOLDER [--chromium chromium]

Fails where the page is wider than a phone's screen, or where Chromium says anything on its console. Chromium is Debian's
package of that name; no other check of the project needs it.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

SIZES = {"phone": (400, 2400), "desk": (1400, 1400)}


def open_page(args, page, size, dark, more):
    words = [args.chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
             f"--window-size={size[0]},{size[1]}", *(["--force-dark-mode"] if dark else []), *more, page.as_uri()]
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--chromium", default="chromium")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    page, failures = args.page.resolve(), 0
    for name, size in SIZES.items():
        for dark in (False, True):
            picture = args.out / f"{name}-{'dark' if dark else 'light'}.png"
            said = open_page(args, page, size, dark, [f"--screenshot={picture}"]).stderr
            console = [line for line in said.splitlines() if "CONSOLE" in line]
            print(f"{picture}: {'; '.join(console) or 'nothing on the console'}")
            failures += bool(console) or not picture.exists()
    # A copy that writes its width into its title tells what a phone would have to scroll.
    probe = args.out / "probe.html"
    probe.write_text(page.read_text(encoding="utf-8").replace(
        "</body>", "<script>document.title = 'width ' + document.scrollingElement.scrollWidth</script></body>"),
        encoding="utf-8")
    found = re.search(r"<title>width (\d+)</title>", open_page(args, probe, SIZES["phone"], False, ["--dump-dom"]).stdout)
    probe.unlink()
    width = int(found.group(1)) if found else None
    # Chromium opens no window below 500 pixels: the page must not ask for more than it has.
    print(f"width on a phone: {width}")
    failures += width is None or width > 500
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
