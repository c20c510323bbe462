#include "lora/io/formats/parquet.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "lora/core/error.hpp"
#include "lora/core/format.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/files/mapped_file.hpp"
#include "lora/io/files/read_file.hpp"
#include "support/effort.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace parquet_test {

using namespace lora;

TEST_CASE("parquet: a file is known by the letters that it begins with") {
  CHECK(io::is_parquet("d.parquet", "PAR1\x15 PAR1"));
  CHECK(io::is_parquet("d.parquet", "PAR1 cut short"));
  CHECK(io::is_parquet("data", "PAR1 cut short"));
  CHECK_FALSE(io::is_parquet("d.parquet", "PAR2 PAR1"));
  CHECK_FALSE(io::is_parquet("d.parquet", "PAR"));
  for (const char* name : {"d.csv", "d.TSV", "d.txt", "d.txt.gz"}) {
    CAPTURE(name);
    CHECK_FALSE(io::is_parquet(name, "PAR1,b\nc,d\n"));
    using namespace std::string_view_literals;
    CHECK(io::is_parquet(name, "PAR1f\1\0\0\0PAR1"sv));
    CHECK(io::is_parquet(name, "PAR1\0\0\0\0PAR1"sv));
    CHECK_FALSE(io::is_parquet(name, "PAR1f\2\0\0\0PAR1"sv));
    CHECK_FALSE(io::is_parquet(name, "PAR1 is a text\nand ends in PAR1"));
    CHECK_FALSE(io::is_parquet(name, "PAR1\0\0\0PAR1"sv));
  }
}

#ifdef LORA_WITH_PARQUET

namespace {

std::string fixture(const std::string& name) { return LORA_FIXTURES "/parquet/" + name; }

/// The lines of a file.
std::string lines_of(const io::MappedFile& file, std::size_t most = io::detail::most_for_parquet) {
  const std::shared_ptr<const io::MappedFile> lines = io::detail::parquet_as_lines(file, most);
  CHECK(lines->path() == file.path());
  return {reinterpret_cast<const char*>(lines->bytes().data()), lines->bytes().size()};
}

/// What reading one says, the folder taken off.
std::string told(const std::string& path, std::size_t most = io::detail::most_for_parquet) {
  std::string said = test::message_of<FormatError>([&] { (void)lines_of(io::MappedFile(path), most); });
  const std::size_t name = path.rfind('/') + 1;
  return said.starts_with(path) ? said.substr(name) : said;
}

/// A file of these bytes: its lines, or what refuses it in one line that begins with its name, from the colon behind
/// that on.
struct Bytes {
  std::string told(std::string_view bytes) const {
    io::write_file(path, bytes);
    std::string said, lines;
    try {
      lines = lines_of(io::MappedFile(path));
    } catch (const FormatError& error) {
      said = error.what();
    }
    if (said.empty()) return lines;
    CHECK(said.starts_with(path + ":"));
    CHECK(said.find('\n') == said.npos);
    CHECK(said.size() < path.size() + 500);
    return said.substr(path.size());
  }

  test::TempFolder folder;
  std::string path = (folder.path() / "d.parquet").native();
};

/// Thrift's compact notation, of which a file's description is written.
class Thrift {
 public:
  Thrift& field(int step, int type) { return byte(static_cast<unsigned>(step) << 4 | static_cast<unsigned>(type)); }
  Thrift& integer(std::int64_t value) {
    return varint(static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63));
  }
  Thrift& varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) byte(static_cast<unsigned>(value & 0x7F) | 0x80u);
    return byte(static_cast<unsigned>(value));
  }
  Thrift& text(std::string_view text) {
    varint(text.size());
    bytes += text;
    return *this;
  }
  Thrift& byte(unsigned value) {
    bytes += static_cast<char>(value);
    return *this;
  }

  static constexpr int i32 = 5, i64 = 6, binary = 8, list = 9, structs = 12;
  std::string bytes;
};

/// A file that describes itself so, and has nothing else.
std::string described(const std::string& description) {
  std::string bytes = "PAR1" + description;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(description.size() >> (8 * i) & 0xFF);
  return bytes + "PAR1";
}

/// A description of a column in so many structs, and of so many rows, of which no group has one.
std::string nested(std::uint64_t structs, std::int64_t rows, std::uint64_t told_structs) {
  Thrift to;
  to.field(1, Thrift::i32).integer(2);
  to.field(1, Thrift::list).byte(0xF0u | unsigned{Thrift::structs}).varint(told_structs + 2);
  for (std::uint64_t i = 0; i <= structs; ++i)
    to.field(3, Thrift::i32).integer(1).field(1, Thrift::binary).text("a").field(1, Thrift::i32).integer(1).byte(0);
  to.field(1, Thrift::i32).integer(1).field(2, Thrift::i32).integer(1).field(1, Thrift::binary).text("a").byte(0);
  to.field(1, Thrift::i64).integer(rows);
  to.field(1, Thrift::list).byte(Thrift::structs).byte(0);
  return described(to.bytes);
}

}  // namespace

TEST_CASE("parquet: rows are records of JSON, whatever their types, row groups and compression") {
  for (const std::string name : {"types", "chat", "pairs"}) {
    CAPTURE(name);
    CHECK(lines_of(io::MappedFile(fixture(name + ".parquet"))) == io::read_file(fixture(name + ".jsonl")));
  }
  CHECK(lines_of(io::MappedFile(fixture("empty.parquet"))).empty());
}

TEST_CASE("parquet: what has no JSON is told with its row and column") {
  CHECK(told(fixture("bytes.parquet")) ==
        "bytes.parquet:300: column \"image\" has bytes that are no UTF-8; expected a text");
  CHECK(told(fixture("infinite.parquet")) == "infinite.parquet:2: column \"x\" is infinite; expected a number");
  CHECK(told(fixture("duration.parquet")) ==
        "duration.parquet:1: column \"took\" has values of the type duration[s]; expected texts, numbers, true and "
        "false, "
        "days and times, or lists and structs of these: write the file without the column");
  CHECK(told(fixture("twins.parquet")) == "twins.parquet: column 2 is called \"text\", as column 1 is");
  CHECK(told(fixture("keys.parquet")) == "keys.parquet:1: column \"m\" is a map of 1; expected texts as keys");
}

TEST_CASE("parquet: a file takes no more memory than it may") {
  CHECK(told(fixture("bytes.parquet"), 1 << 8) ==
        "bytes.parquet: a few rows of the Parquet file take more than 0 MiB, or it is damaged; expected smaller row "
        "groups "
        "or pages");
}

TEST_CASE("parquet: nesting without end and counts of nothing are refused") {
  const Bytes file;
  CHECK(file.told(nested(3, 0, 3)).empty());
  CHECK(file.told(nested(1000, 0, 1000)).starts_with(": the Parquet file can't be read: "));
  CHECK(file.told(nested(400000, 0, 400000)).starts_with(": the Parquet file can't be read: "));
  CHECK(file.told(nested(3, 0, std::uint64_t{1} << 40)).starts_with(": the Parquet file can't be read: "));
  CHECK(file.told(nested(3, 0, 900000)).starts_with(": the Parquet file can't be read: "));
  (void)file.told(nested(3, std::int64_t{1} << 62, 3));
}

TEST_CASE("parquet: a file that is cut short or has a wrong bit is read or refused in one line") {
  const Bytes file;
  for (const char* name : {"chat.parquet", "pairs.parquet", "types.parquet"}) {
    CAPTURE(name);
    const std::string whole = io::read_file(fixture(name)), lines = file.told(whole);
    const bool has_sums = std::string_view(name) == "chat.parquet";
    std::uint32_t footer = 0;
    std::memcpy(&footer, whole.data() + whole.size() - 8, sizeof footer);
    const std::size_t step = test::effort<std::size_t>(1, 13, "parquet: most places of files that are damaged");
    for (std::size_t size = 4; size < whole.size(); size += step * 7) {
      CAPTURE(size);
      CHECK(file.told(whole.substr(0, size)).starts_with(": the Parquet file can't be read: "));
    }
    for (std::size_t at = 4; at < whole.size() - 4; at += step) {
      CAPTURE(at);
      std::string damaged = whole;
      damaged[at] = static_cast<char>(static_cast<unsigned char>(damaged[at]) ^ (1u << at % 8));
      const std::string damage = file.told(damaged);
      if (damage.starts_with(":")) continue;
      CHECK(std::count(damage.begin(), damage.end(), '\n') == std::count(lines.begin(), lines.end(), '\n'));
      if (has_sums && at < whole.size() - 8 - footer) CHECK(damage == lines);
    }
  }
}

#else

TEST_CASE("parquet: rows are records of JSON") { test::skipped("io: Parquet files, for want of Arrow"); }

#endif

}  // namespace parquet_test
