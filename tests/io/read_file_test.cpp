#include "lora/io/files/read_file.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "lora/io/files/file.hpp"
#include "lora/io/files/mapped_file.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace read_file_test {

using namespace lora;

namespace {

std::string refusal(const io::Path& path) {
  return test::message_of<IoError>([&] { io::read_file(path); });
}

}  // namespace

TEST_CASE("read_file: what is no regular file is refused before it is read") {
  const test::TempFolder folder;
  const io::Path pipe = folder / "pipe", zero = folder / "zero";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  std::filesystem::create_symlink("/dev/zero", zero);
  CHECK(refusal(pipe) == "cannot read " + pipe.native() + ": it is a pipe; expected a regular file");
  CHECK(refusal(zero) == "cannot read " + zero.native() + ": it is a device; expected a regular file");
  CHECK(refusal(folder.path()) == "cannot read " + folder.path().native() + ": Is a directory");
  CHECK(test::holds(test::message_of<IoError>([&] { io::copy_file(pipe, folder / "copy"); }), "it is a pipe"));
  CHECK(test::holds(test::message_of<IoError>([&] { io::MappedFile mapped(pipe); }), "not a regular file"));
  CHECK_FALSE(std::filesystem::exists(folder / "copy"));

  const io::Path place = folder / "socket";
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, place.c_str(), sizeof address.sun_path - 1);
  REQUIRE(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  CHECK(refusal(place) == "cannot read " + place.native() + ": it is a socket; expected a regular file");
  ::close(socket);
}

TEST_CASE("read_file: not more than the limit is read") {
  const test::TempFolder folder;
  const io::Path file = folder / "file";
  io::write_file(file, std::string(1000, 'x'));
  CHECK(io::read_file(file, 1000).size() == 1000);
  CHECK(test::message_of<IoError>([&] { io::read_file(file, 999); }) ==
        "cannot read " + file.native() + ": it is longer than 999 bytes, the most that such a file may have");
  std::filesystem::resize_file(file, std::uintmax_t{1} << 40);  // of holes
  CHECK(test::holds(refusal(file), "it is longer than 268435456 bytes"));
}

TEST_CASE("read_file: a name is there where a link to nothing is, and reading it says so") {
  const test::TempFolder folder;
  std::filesystem::create_symlink("nowhere", folder / "dangling");
  std::filesystem::create_symlink("round", folder / "round");
  io::write_file(folder / "file", "x");
  CHECK(io::is_there(folder / "file"));
  CHECK(io::is_there(folder / "dangling"));
  CHECK(io::is_there(folder / "round"));
  CHECK_FALSE(io::is_there(folder / "none"));
  CHECK_FALSE(io::is_there(folder / "file" / "below"));
  CHECK(test::holds(refusal(folder / "dangling"), "it is a link to a file that does not exist"));
  CHECK(test::holds(refusal(folder / "round"), "Too many levels of symbolic links"));
  CHECK(test::holds(refusal(folder / "none"), "No such file or directory"));
}

TEST_CASE("read_file: a link into a cache of models says which part was not downloaded") {
  const test::TempFolder folder;
  std::filesystem::create_symlink("../../blobs/abc123", folder / "cached");
  std::filesystem::create_symlink("blobs", folder / "other");
  const auto start = [&](const char* name) {
    return "cannot open " + (folder / name).native() + ": it is a link to a file that does not exist";
  };
  CHECK(refusal(folder / "cached") == start("cached") +
                                          ": abc123 of the local cache was not downloaded completely; hf download "
                                          "fetches it again");
  CHECK(refusal(folder / "other") == start("other"));
}

TEST_CASE("read_file: a file that has no size is read, up to the limit") {
  const std::string status = io::read_file("/proc/self/status");
  CHECK(status.starts_with("Name:"));
  CHECK(io::FileReader("/proc/self/status").size() == 0);
  CHECK(test::message_of<IoError>([&] { io::read_file("/proc/self/status", 9); }) ==
        "cannot read /proc/self/status: it is longer than 9 bytes, the most that such a file may have");
}

TEST_CASE("read_file: a window looks ahead, and passes what it has looked at") {
  const test::TempFolder folder;
  io::write_file(folder / "a", "0123456789");
  for (const std::size_t piece : {1u, 3u, 4u, 64u}) {
    CAPTURE(piece);
    io::FileWindow window(folder / "a", piece);
    CHECK(window.size() == 10);
    CHECK(window.look(3) == "012");
    CHECK(window.look(5) == "01234");
    CHECK(window.offset() == 0);
    window.pass(4);
    CHECK(window.offset() == 4);
    CHECK(window.look(2) == "45");
    CHECK(window.look(6) == "456789");
    CHECK(window.look(7) == "456789");
    window.pass(5);
    CHECK(window.look(9) == "9");
    window.pass(1);
    CHECK(window.offset() == 10);
    CHECK(window.look(1).empty());
  }
}

TEST_CASE("read_file: a window finds the line that ends within the limit") {
  const test::TempFolder folder;
  io::write_file(folder / "a", "one\n\nthree is longer\nrest");
  for (const std::size_t piece : {1u, 3u, 4u, 64u}) {
    CAPTURE(piece);
    io::FileWindow window(folder / "a", piece);
    CHECK_FALSE(window.line(3));
    CHECK(window.line(4) == "one\n");
    CHECK(window.line(100) == "one\n");
    window.pass(4);
    CHECK(window.line(1) == "\n");
    window.pass(1);
    CHECK_FALSE(window.line(15));
    CHECK(window.line(16) == "three is longer\n");
    window.pass(16);
    CHECK_FALSE(window.line(4));
    CHECK_FALSE(window.line(100));
    CHECK(window.look(100) == "rest");
  }
}

TEST_CASE("read_file: the sum of a file is that of its bytes, however many") {
  const test::TempFolder folder;
  std::string text(600'000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 % 251);
  io::write_file(folder / "a", text);
  io::write_file(folder / "empty", "");
  const io::FileSum sum = io::file_sum(folder / "a"), none = io::file_sum(folder / "empty");
  CHECK(sum.size == 600'000);
  CHECK(sum.checksum == checksum(text));
  CHECK(none.size == 0);
  CHECK(none.checksum == checksum(std::string_view()));
  CHECK(io::FileReader(folder / "a").path() == folder / "a");
  CHECK(io::FileReader(folder / "a").size() == 600'000);
}

}  // namespace read_file_test
