#include "lora/io/mapped_file.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "lora/io/file.hpp"
#include "support/temp_folder.hpp"

namespace mapped_file_test {

using namespace lora;
using lora::io::MappedFile;
using lora::test::TempFolder;

namespace {

std::string io_error(const std::filesystem::path& path) {
  try {
    const MappedFile file(path);
  } catch (const IoError& error) {
    return error.what();
  }
  return "no IoError";
}

}  // namespace

TEST_CASE("mapped_file: the bytes are the file's") {
  const TempFolder folder;
  const std::string text(10'000, 'x');
  io::write_file(folder / "a", text + "end");
  const MappedFile file(folder / "a");
  REQUIRE(file.bytes().size() == text.size() + 3);
  CHECK(std::memcmp(file.bytes().data() + text.size(), "end", 3) == 0);
  CHECK(file.path() == folder / "a");
}

TEST_CASE("mapped_file: an empty file has no bytes") {
  const TempFolder folder;
  io::write_file(folder / "a", "");
  CHECK(MappedFile(folder / "a").bytes().empty());
}

TEST_CASE("mapped_file: the content outlives the file's name") {
  const TempFolder folder;
  io::write_file(folder / "a", "old");
  const MappedFile file(folder / "a");
  io::write_file(folder / "a", "new");  // another file under the same name
  CHECK(std::memcmp(file.bytes().data(), "old", 3) == 0);
}

TEST_CASE("mapped_file: what cannot be mapped is named") {
  const TempFolder folder;
  const std::string base = folder.path().native();
  CHECK(io_error(folder / "absent") == "cannot open " + base + "/absent: No such file or directory");
  CHECK(io_error(folder.path()) == "cannot open " + base + ": Is a directory");
  CHECK(io_error("/dev/null") == "cannot map /dev/null: not a regular file");
}

namespace {

/// Memory of this process that files have, in bytes.
std::size_t mapped_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssFile:")) return 1024 * std::stoul(line.substr(8));
  return 0;
}

}  // namespace

TEST_CASE("mapped file: pages that were read are given back") {
  const test::TempFolder folder;
  io::write_file(folder / "a", std::string_view("begin"));
  std::filesystem::resize_file(folder / "a", std::size_t{100} << 20);
  const MappedFile file(folder / "a");
  const std::size_t before = mapped_memory();
  REQUIRE(before > 0);
  std::size_t most = 0;
  int sum = 0;
  for (std::size_t at = 0; at < file.bytes().size(); at += 4096) {
    sum += static_cast<int>(file.bytes()[at]);
    file.note_read(4096);
    if (at % (1 << 20) == 0) most = std::max(most, mapped_memory());
  }
  CHECK(sum == 'b');
  CHECK(file.bytes()[1] == std::byte{'e'});
  CHECK(most < before + (std::size_t{50} << 20));
}

}  // namespace mapped_file_test
