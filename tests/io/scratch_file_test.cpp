#include "lora/io/files/scratch_file.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "support/environment.hpp"
#include "support/message_of.hpp"
#include "support/refused_operation.hpp"
#include "support/temp_folder.hpp"

namespace scratch_file_test {

using namespace lora;

TEST_CASE("scratch_file: without nameless files a file's name is removed at once, and it can be used") {
  const test::TempFolder folder;
  const int descriptor = io::detail::create_and_unlink(folder.path());
  REQUIRE(descriptor >= 0);
  CHECK(std::filesystem::is_empty(folder.path()));
  CHECK(::write(descriptor, "ab", 2) == 2);
  char read[2] = {};
  CHECK(::pread(descriptor, read, 2, 0) == 2);
  CHECK(std::string_view(read, 2) == "ab");
  ::close(descriptor);
}

TEST_CASE("scratch_file: a folder that is not there is an error") {
  const test::TempFolder folder;
  CHECK(io::detail::create_and_unlink(folder.path() / "none") == -1);
}

TEST_CASE("scratch_file: it lies where TMPDIR says, else where there is a disk") {
  const test::Environment chosen("TMPDIR", "/some/where");
  CHECK(io::scratch_folder() == "/some/where");
  const test::Environment empty("TMPDIR", "");
  CHECK(io::scratch_folder() == "/var/tmp");
  ::unsetenv("TMPDIR");
  CHECK(io::scratch_folder() == "/var/tmp");
}

TEST_CASE("scratch_file: what is written is whole after short writes, and a full disk is told with what it was for") {
  const test::TempFolder temp;
  const test::Environment folder("TMPDIR", temp.path().native());
  io::ScratchFile file("the words");
  CHECK(file.holds() == "the words");
  CHECK(std::filesystem::is_empty(temp.path()));
  struct OneByte final : io::FileHook {
    io::FileVerdict before(const io::FileOperation&) override { return {0, 1}; }
    void after(const io::FileOperation& operation) override { writes += operation.kind == Kind::write; }
    using Kind = io::FileOperation::Kind;
    int writes = 0;
  } hook;
  io::set_file_hook(&hook);
  file.write("abc");
  io::set_file_hook(nullptr);
  CHECK(hook.writes == 3);
  file.write("");
  file.write("de");
  char read[8] = {};
  CHECK(::pread(file.descriptor(), read, sizeof read, 0) == 5);
  CHECK(std::string_view(read) == "abcde");
  const std::string start = "cannot write the words to a temporary file in " + temp.path().native() + ": ";
  {
    const test::RefusedOperation full(io::FileOperation::Kind::write, ENOSPC);
    CHECK(test::message_of<IoError>([&] { file.write("x"); }) ==
          start + "No space left on device; TMPDIR names another folder");
    CHECK(full.paths == std::vector<io::Path>{temp.path()});
  }
  const test::RefusedOperation refused(io::FileOperation::Kind::create, EACCES);
  CHECK(test::message_of<IoError>([&] { io::ScratchFile other("the words"); }) ==
        start + "Permission denied; TMPDIR names another folder");
}

}  // namespace scratch_file_test
