#include "lora/io/read_file.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "lora/io/file.hpp"
#include "lora/io/mapped_file.hpp"
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

}  // namespace read_file_test
