#include "lora/io/scratch_file.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>

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

}  // namespace scratch_file_test
