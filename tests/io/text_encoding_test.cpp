#include "lora/io/files/text_encoding.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "lora/io/formats/json.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace text_encoding_test {

using namespace lora;
using namespace std::string_view_literals;

namespace {

/// A text of ASCII, each character in `width` bytes with its own at `place`.
std::string wide(std::string_view text, std::size_t width, std::size_t place) {
  std::string bytes;
  for (const char c : text) {
    std::string unit(width, '\0');
    unit[place] = c;
    bytes += unit;
  }
  return bytes;
}

}  // namespace

TEST_CASE("text encoding: UTF-16 and UTF-32 are told by their mark, or by zeros beside the first two characters") {
  const std::string_view text = "{\"a\": 1}";
  CHECK(io::wide_encoding("\xFF\xFE" + wide(text, 2, 0)) == "UTF-16");
  CHECK(io::wide_encoding("\xFE\xFF" + wide(text, 2, 1)) == "UTF-16");
  CHECK(io::wide_encoding(std::string("\xFF\xFE\0\0"sv) + wide(text, 4, 0)) == "UTF-32");
  CHECK(io::wide_encoding(std::string("\0\0\xFE\xFF"sv) + wide(text, 4, 3)) == "UTF-32");
  CHECK(io::wide_encoding(wide(text, 2, 0)) == "UTF-16LE");
  CHECK(io::wide_encoding(wide(text, 2, 1)) == "UTF-16BE");
  CHECK(io::wide_encoding(wide(text, 4, 0)) == "UTF-32LE");
  CHECK(io::wide_encoding(wide(text, 4, 3)) == "UTF-32BE");
  CHECK(io::wide_encoding(wide("\n\t", 2, 0)) == "UTF-16LE");
  // A file of sentencepiece, an event file of TensorBoard whose first record has 40 bytes, and texts of UTF-8.
  for (const std::string_view other : {"\n\x0E\n\x05<unk>"sv, "\x28\0\0\0\0\0\0\0\x12"sv, "\xEF\xBB\xBF{}"sv, "{"sv,
                                       ""sv, "a\0b"sv, "\0\0\0\0"sv, "\xE5\xA5\xBD"sv})
    CHECK(io::wide_encoding(other).empty());
}

TEST_CASE("text encoding: what is no UTF-8 may be a wide text that begins with any character") {
  CHECK(io::wide_encoding_within("\x2D\x4E\n\0"sv) == "UTF-16LE");
  CHECK(io::wide_encoding_within("\x4E\x2D\0\n"sv) == "UTF-16BE");
  // U+4E00 has a zero byte too.
  CHECK(io::wide_encoding_within("\x87\x65\0\x4E\n\0a\0"sv) == "UTF-16LE");
  CHECK(io::wide_encoding_within("\x2D\x4E\0\0\n\0\0\0"sv) == "UTF-32LE");
  CHECK(io::wide_encoding_within("\0\0\x4E\x2D\0\0\0\n"sv) == "UTF-32BE");
  // GB 18030, Latin-1, UTF-8 with a broken character, nothing, and what has zeros of other kinds.
  for (const std::string_view other :
       {"\xD6\xD0\xCE\xC4\n"sv, "\xE9t\xE9\n"sv, "fine\nbad \xFFz\n"sv, ""sv, "\xFF"sv, "\xFF\0\0\0\0\0\0\0"sv})
    CHECK(io::wide_encoding_within(other).empty());
}

TEST_CASE("text encoding: a file of settings in UTF-16 says what it is and what converts it") {
  const test::TempFolder folder;
  io::write_file(folder / "a.json", std::string_view("\xFF\xFE" + wide("{}", 2, 0)));
  CHECK(test::message_of<FormatError>([&] { (void)io::read_json(folder / "a.json"); }) ==
        (folder / "a.json").native() +
            ": the text is UTF-16; expected UTF-8: iconv -f UTF-16 -t UTF-8 OLD > NEW converts it");
}

TEST_CASE("text encoding: two printable characters or line ends tell a wide text, other bytes don't") {
  for (const char c : {' ', '~', '\n', '\r', '\t', 'a'}) {
    CAPTURE(static_cast<int>(c));
    CHECK(io::wide_encoding(wide(std::string{c, 'x'}, 2, 0)) == "UTF-16LE");
    CHECK(io::wide_encoding(wide(std::string{'x', c}, 2, 1)) == "UTF-16BE");
  }
  for (const char c : {'\x1F', '\x7F', '\x80', '\x0B', '\x01', '\0'}) {
    CAPTURE(static_cast<int>(c));
    CHECK(io::wide_encoding(wide(std::string{c, 'x'}, 2, 0)).empty());
    CHECK(io::wide_encoding(wide(std::string{'x', c}, 2, 1)).empty());
    CHECK(io::wide_encoding(wide(std::string{'x', c}, 4, 3)).empty());
  }
  CHECK(io::wide_encoding(wide("ab", 4, 1)).empty());
  CHECK(io::wide_encoding(wide("ab", 2, 0).substr(0, 3)).empty());
  CHECK(io::wide_encoding(wide("ab", 4, 0).substr(0, 7)).empty());
  CHECK(io::wide_encoding(std::string("\xFF\xFE\0a"sv)) == "UTF-16");
  CHECK(io::wide_encoding("\xFF"sv).empty());
}

TEST_CASE("text encoding: within a text the more frequent order counts, zeros beside each other too") {
  CHECK(io::wide_encoding_within("a\0b\0\0c"sv) == "UTF-16LE");
  CHECK(io::wide_encoding_within("\0a\0bc\0"sv) == "UTF-16BE");
  CHECK(io::wide_encoding_within("a\0\0b"sv).empty());
  CHECK(io::wide_encoding_within("\x7E\0"sv) == "UTF-16LE");
  CHECK(io::wide_encoding_within("\x7F\0"sv).empty());
  CHECK(io::wide_encoding_within("\x80\0"sv).empty());
  CHECK(io::wide_encoding_within("\0\x01"sv) == "UTF-16BE");
  // Of three characters of four bytes one is ASCII: zeros are a quarter of the text, or fewer.
  CHECK(io::wide_encoding_within("\0\0\0a\x11\x11\x11\x11"sv).empty());
  CHECK(io::wide_encoding_within("a\0\0\0b\0\0\0"sv) == "UTF-32LE");
  CHECK(io::wide_encoding_within("\0\0\0a\0\0\0b"sv) == "UTF-32BE");
  CHECK(io::wide_encoding_within(std::string(1 << 16, '\xFF') + std::string("a\0"sv)).empty());
  CHECK(io::wide_encoding_within(std::string((1 << 16) - 2, '\xFF') + std::string("a\0"sv)) == "UTF-16LE");
}

TEST_CASE("text encoding: what is known to be no UTF-8 is looked at within") {
  const std::string_view text = "\x2D\x4E\n\0"sv;
  CHECK_NOTHROW(io::refuse_wide_text("a", text));
  CHECK(test::message_of<FormatError>([&] { io::refuse_wide_text("a", text, false); }) ==
        "a: the text is UTF-16LE; expected UTF-8: iconv -f UTF-16LE -t UTF-8 OLD > NEW converts it");
  CHECK_NOTHROW(io::refuse_wide_text("a", "\xE9t\xE9\n"sv, false));
  CHECK_NOTHROW(io::refuse_wide_text("a", "", false));
}

}  // namespace text_encoding_test
