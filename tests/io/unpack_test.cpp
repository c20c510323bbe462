#include "lora/io/formats/unpack.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/data/records/dataset.hpp"
#include "lora/io/files/file.hpp"
#include "support/environment.hpp"
#include "support/message_of.hpp"
#include "support/one_file.hpp"
#include "support/packed.hpp"
#include "support/temp_folder.hpp"

namespace unpack_test {

using namespace lora;
using test::OneFile;

namespace {

using Pack = std::function<std::string(const std::string&)>;

/// Each compression that this build can read, by its extension.
std::vector<std::pair<std::string, Pack>> packings() {
  std::vector<std::pair<std::string, Pack>> all = {{".gz", test::gzipped}};
#ifdef LORA_WITH_ZSTD
  all.emplace_back(".zst", test::zstandard);
#endif
  return all;
}

std::string unpacked(const std::string& packed) {
  const OneFile file(packed);
  const auto mapped = io::map_unpacked(file.path);
  return {reinterpret_cast<const char*>(mapped->bytes().data()), mapped->bytes().size()};
}

std::string words(std::size_t size) {
  Random random(3);
  std::string text;
  while (text.size() < size) text += concat("word ", random.below(1000), '\n');
  return text;
}

}  // namespace

TEST_CASE("unpack: what was compressed comes back, whatever its size, from one part or several") {
  for (const auto& packing : packings()) {
    const std::string& extension = packing.first;
    const Pack& pack = packing.second;
    CAPTURE(extension);
    for (const std::size_t size : {0u, 1u, 1000u, 262144u, 3000000u}) {
      std::string text = words(size);
      text.resize(size);
      CHECK(unpacked(pack(text)) == text);
      CHECK(unpacked(pack(text) + pack("") + pack("more")) == text + "more");
    }
    CHECK(unpacked(pack(std::string(5000000, '\0'))) == std::string(5000000, '\0'));
  }
  CHECK(unpacked(test::gzipped("text") + std::string(700, '\0')) == "text");  // as on a tape
  CHECK(unpacked("text") == "text");
  CHECK(unpacked("\x1F") == "\x1F");
  CHECK(unpacked("").empty());
}

TEST_CASE("unpack: a data set is read by what it is and by its name without the compression") {
  for (const auto& packing : packings()) {
    const std::string& extension = packing.first;
    const Pack& pack = packing.second;
    CAPTURE(extension);
    CHECK(OneFile(pack(R"({"text":"T"})"), "a.jsonl" + extension).first().text == "T");
    CHECK(OneFile(pack("[{\"text\":\n\"T\"}]"), "a.json" + extension).first().text == "T");
    CHECK(OneFile(pack("{\"a\": 1}"), "a.txt" + extension).first().text == "{\"a\": 1}");
    CHECK(OneFile(pack("{\"a\": 1}"), "a.TXT" + extension).first().text == "{\"a\": 1}");
    CHECK(OneFile(pack(R"({"text":"T"})"), "named otherwise").first().text == "T");
    CHECK(OneFile(R"({"text":"T"})", "not packed" + extension).first().text == "T");
    // Errors name the line in what the file holds.
    CHECK(OneFile(pack("{\"text\":\"T\"}\n\n{\"text\":}\n"), "a" + extension)
              .error()
              .starts_with("a" + extension + ":3"));
    const OneFile plain(words(100), "a.txt"), packed(pack(words(100)), "a.txt" + extension);
    CHECK(plain.open().fingerprint() == packed.open().fingerprint());
  }
}

TEST_CASE("unpack: a file that was cut short anywhere is refused") {
  for (const auto& packing : packings()) {
    const std::string& extension = packing.first;
    const Pack& pack = packing.second;
    CAPTURE(extension);
    const std::string packed = pack(words(3000));
    for (std::size_t size = 4; size < packed.size(); size += size < 40 || size + 20 > packed.size() ? 1 : 97) {
      CAPTURE(size);
      const std::string told = OneFile(packed.substr(0, size), "a" + extension).error();
      CHECK(told == "a" + extension + ": the compressed file ends too early; it was cut short");
    }
  }
}

TEST_CASE("unpack: damage and what follows after the end are named with their place") {
  for (const auto& packing : packings()) {
    const std::string& extension = packing.first;
    const Pack& pack = packing.second;
    CAPTURE(extension);
    const std::string name = "a" + extension;
    std::string packed = pack(words(3000));
    packed[packed.size() / 2] = static_cast<char>(packed[packed.size() / 2] ^ 0x55);
    const std::string told = OneFile(packed, name).error();
    const bool early = told == name + ": the compressed file ends too early; it was cut short";
    CHECK((early || told.starts_with(name + ": the compressed file is damaged near byte ")));
  }
  std::string checksum = test::gzipped("text");
  checksum[checksum.size() - 6] = static_cast<char>(checksum[checksum.size() - 6] ^ 1);
  CHECK(test::holds(OneFile(checksum, "a.gz").error(), "a.gz: the compressed file is damaged near byte "));
  const std::string whole = test::gzipped("text");
  CHECK(OneFile(whole + "more", "a.gz").error() ==
        concat("a.gz: bytes that are not gzip's follow after byte ", whole.size()));
  // Of the second part, the method of compression: it is no other than 8.
  CHECK(OneFile(whole + "\x1F\x8B\x07 and so on", "a.gz").error() ==
        concat("a.gz: the compressed file is damaged near byte ", whole.size() + 4, ": unknown compression method"));
#ifdef LORA_WITH_ZSTD
  const std::string frame = test::zstandard("text");
  CHECK(OneFile(frame + "more bytes", "a.zst").error() ==
        concat("a.zst: the compressed file is damaged near byte ", frame.size(), ": Unknown frame descriptor"));
#endif
}

TEST_CASE("unpack: a file that would fill the disk is refused") {
  const std::string zeros(std::size_t{1} << 26, '\0');
  for (const auto& packing : packings()) {
    const std::string& extension = packing.first;
    const Pack& pack = packing.second;
    CAPTURE(extension);
    std::string packed;
    for (const std::string part = pack(zeros); packed.size() < 17 * part.size();) packed += part;  // 1.06 GiB
    CHECK(OneFile(packed, "a").error() ==
          "a: unpacked it has more than 1073741824 bytes, over 256 times its size; unpack it by other means if that is "
          "right");
  }
}

TEST_CASE("unpack: no temporary file keeps a name, and a folder without room is named") {
  const OneFile file(test::gzipped("text"));
  const test::TempFolder temp;
  const test::Environment folder("TMPDIR", temp.path().native());
  const auto mapped = io::map_unpacked(file.path);
  CHECK(mapped->bytes().size() == 4);
  CHECK(std::filesystem::is_empty(temp.path()));
  const test::Environment missing("TMPDIR", (temp / "missing").native());
  CHECK(test::holds(test::message_of<IoError>([&] { io::map_unpacked(file.path); }),
                    concat("holds to a temporary file in ", (temp / "missing").native(), ": No such file")));
}

TEST_CASE("unpack: only the names of compressed files lose their end") {
  CHECK(io::unpacked_name("a/b.txt.gz") == "a/b.txt");
  for (const char* name : {"a/b.txt.GZ", "a/b.txt.gzip", "a/b.txt.Zst", "a/b.txt.zstd"})
    CHECK(io::unpacked_name(name) == "a/b.txt");
  CHECK(io::unpacked_name("b.jsonl.zst") == "b.jsonl");
  CHECK(io::unpacked_name("b.json") == "b.json");
}

#ifdef LORA_WITH_ZSTD
TEST_CASE("unpack: a frame that asks for a window of gigabytes is refused in words") {
  // A frame of one byte, whose header asks for 2 GiB.
  const std::string frame("\x28\xB5\x2F\xFD\x00\xA8\x09\x00\x00x", 10);
  CHECK(OneFile(frame, "a.zst").error() ==
        "a.zst: the compressed file asks for a window of more than 128 MiB; pack it again without zstd's --long or "
        "--ultra");
}
#endif

TEST_CASE("unpack: a file's packing is told by its first bytes, all of them") {
  using io::Packing, io::packing_of;
  CHECK(packing_of("\x1F\x8B") == Packing::gzip);
  CHECK(packing_of("\x1F\x8B\x08") == Packing::gzip);
  for (const char* const text : {"", "\x1F", "\x1F\x8C", "\x1E\x8B", "\x8B\x1F"})
    CHECK(packing_of(text) == Packing::none);
  CHECK(packing_of("\x28\xB5\x2F\xFD") == Packing::zstd);
  CHECK(packing_of("\x28\xB5\x2F") == Packing::none);
  const std::string frame = "\x28\xB5\x2F\xFD", skipped = "\x50\x2A\x4D\x18";
  for (const auto& mark : {frame, skipped})
    for (std::size_t i = 0; i < 4; ++i) {
      std::string other = mark;
      other[i] = static_cast<char>(other[i] ^ 0x20);
      CHECK(packing_of(other) == Packing::none);
    }
  for (const char* const text : {"\x50\x2A\x4D\x18", "\x5F\x2A\x4D\x18 and more"})
    CHECK(packing_of(text) == Packing::zstd);
  CHECK(packing_of("\x60\x2A\x4D\x18") == Packing::none);
}

TEST_CASE("unpack: extensions are lower case, and only the last is") {
  CHECK(io::lower_extension("a.B.JSONL") == ".jsonl");
  CHECK(io::lower_extension("A/B.AZaz@[`{09") == ".azaz@[`{09");
  CHECK(io::lower_extension("A").empty());
  CHECK(io::unpacked_name("a.gz.txt") == "a.gz.txt");
  CHECK(io::unpacked_name("a.gz.gz") == "a.gz");
  for (const char* const name : {"a.g", "a.gzi", "a.zs", "a.zstdd", "gz", "a.zip"})
    CHECK(io::unpacked_name(name) == name);
}

TEST_CASE("unpack: the mapped file has the name of the packed one") {
  const OneFile file(test::gzipped("text"), "a.gz");
  CHECK(io::map_unpacked(file.path)->path() == file.path);
  const OneFile plain("text", "b");
  CHECK(io::map_unpacked(plain.path)->path() == plain.path);
}

}  // namespace unpack_test
