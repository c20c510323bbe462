#include "lora/io/files/mapped_file.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "lora/io/files/file.hpp"
#include "lora/io/formats/tensor_file.hpp"
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
  // Little of each of many places, where a touch maps what is around it.
  most = 0;
  for (std::size_t at = 0; at < file.bytes().size(); at += std::size_t{64} << 10) {
    sum += static_cast<int>(file.bytes()[at]);
    file.note_read(1);
    if (at % (1 << 20) == 0) most = std::max(most, mapped_memory());
  }
  CHECK(sum == 2 * 'b');
  CHECK(most < before + (std::size_t{50} << 20));
}

TEST_CASE("mapped_file: address space is given back, also of what is refused") {
  const TempFolder folder;
  const auto is_mapped = [](const std::filesystem::path& path) {
    return io::read_file("/proc/self/maps").find(path.native()) != std::string::npos;
  };
  io::write_file(folder / "a", "x");
  io::write_file(folder / "pointer", "version https://git-lfs.github.com/spec/v1\n");
  {
    const MappedFile file(folder / "a");
    CHECK(is_mapped(folder / "a"));
  }
  CHECK_FALSE(is_mapped(folder / "a"));
  CHECK_THROWS_AS(MappedFile(folder / "pointer"), FormatError);
  CHECK_FALSE(is_mapped(folder / "pointer"));
}

TEST_CASE("tensor_file: to compare tensors keeps few pages of their files resident, and none afterward") {
  const test::TempFolder folder;
  constexpr std::size_t size = std::size_t{96} << 20;
  io::write_file(folder / "a", std::string_view("begin"));
  std::filesystem::resize_file(folder / "a", 2 * size - 3);  // of holes
  std::ofstream(folder / "a", std::ios::app) << "end";
  const auto file = std::make_shared<const MappedFile>(folder / "a");
  const auto tensor = [&](std::size_t at, std::size_t bytes) {
    return io::StoredTensor{"t", DType::i8, {static_cast<Index>(bytes)}, file->bytes().subspan(at, bytes), file};
  };
  const std::size_t before = mapped_memory();
  CHECK(is_same(tensor(8, size - 8), tensor(size, size - 8)));
  CHECK(mapped_memory() < before + (std::size_t{8} << 20));
  CHECK_FALSE(is_same(tensor(0, size), tensor(size, size)));
  CHECK_FALSE(is_same(tensor(8, size - 8), tensor(size + 8, size - 8)));  // but for the end they are
  CHECK_FALSE(is_same(tensor(8, 16), tensor(8, 8)));
  io::StoredTensor other = tensor(8, 16);
  other.dtype = DType::u8;
  CHECK_FALSE(is_same(other, tensor(8, 16)));
  other.dtype = DType::i8;
  other.shape = {4, 4};
  CHECK_FALSE(is_same(other, tensor(8, 16)));
  {
    const int descriptor = ::open((folder / "a").c_str(), O_RDWR);
    REQUIRE(::pwrite(descriptor, "x", 1, static_cast<off_t>(2 * size - 9)) == 1);  // the last byte that is compared
    ::close(descriptor);
  }
  CHECK_FALSE(is_same(tensor(8, size - 8), tensor(size, size - 8)));
}

TEST_CASE("mapped_file: an address within a mapped file is told to be that file's") {
  const TempFolder folder;
  io::write_file(folder / "a", std::string(5000, 'a'));
  io::write_file(folder / "b", std::string(4096, 'b'));
  const char* text = "elsewhere";
  CHECK(io::mapped_at(text) == nullptr);
  const std::byte* begin = nullptr;
  {
    const MappedFile a(folder / "a"), b(folder / "b");
    begin = a.bytes().data();
    const auto at = [&](std::size_t offset) { return io::mapped_at(begin + offset); };
    for (const std::size_t offset : {0u, 1u, 4999u}) CHECK(at(offset) == a.path().c_str());
    CHECK(at(5000) != a.path().c_str());
    CHECK(io::mapped_at(begin - 1) != a.path().c_str());
    CHECK(io::mapped_at(b.bytes().data() + 4095) == b.path().c_str());
    CHECK(io::mapped_at(b.bytes().data() + 4096) != b.path().c_str());
  }
  CHECK(io::mapped_at(begin) == nullptr);
}

TEST_CASE("mapped_file: what a scratch file holds is mapped, and the file may be closed then") {
  std::optional<io::ScratchFile> scratch("some words");
  scratch->write("words");
  const MappedFile file(*scratch, "the words.gz");
  scratch.reset();
  REQUIRE(file.bytes().size() == 5);
  CHECK(std::memcmp(file.bytes().data(), "words", 5) == 0);
  CHECK(file.path() == "the words.gz");
  CHECK(io::mapped_at(file.bytes().data() + 4) == file.path().c_str());
  file.release();
  CHECK(std::memcmp(file.bytes().data(), "words", 5) == 0);
  const io::ScratchFile none("nothing");
  const MappedFile empty(none, "x");
  CHECK(empty.bytes().empty());
  empty.release();
  empty.note_read(std::size_t{1} << 30);
}

TEST_CASE("mapped_file: a link to nothing is told from a file that is not there") {
  const TempFolder folder;
  std::filesystem::create_symlink("nowhere", folder / "link");
  CHECK(io_error(folder / "link") ==
        "cannot open " + (folder / "link").native() + ": it is a link to a file that does not exist");
  io::write_file(folder / "file", "x");
  CHECK(io_error(folder / "file/below") == "cannot open " + (folder / "file/below").native() + ": Not a directory");
}

TEST_CASE("tensor_file: bytes of a tensor are known unless they overflow") {
  CHECK(io::detail::checked_bytes(DType::f32, Shape{2, 3}) == 24);
  CHECK(io::detail::checked_bytes(DType::f32, Shape{}) == 4);
  CHECK(io::detail::checked_bytes(DType::q8_0, Shape{2, 64}) == 136);
  CHECK(io::detail::checked_bytes(DType::f32, Shape{0, 3}) == 0);
  const Index large = Index{1} << 62;
  CHECK(io::detail::checked_bytes(DType::u8, Shape{large}) == large);
  CHECK_FALSE(io::detail::checked_bytes(DType::bf16, Shape{large}));
  CHECK_FALSE(io::detail::checked_bytes(DType::u8, Shape{0, large, 2}));
}

}  // namespace mapped_file_test
