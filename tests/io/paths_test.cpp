#include "lora/io/files/paths.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "lora/io/files/file.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace paths_test {

using namespace lora;
using namespace lora::io;
using test::message_of;
using test::TempFolder;

TEST_CASE("paths: a link is neither a file nor a folder, whatever it leads to") {
  const TempFolder temp;
  create_folder(temp / "folder");
  write_file(temp / "file", "x");
  std::filesystem::create_symlink(temp / "file", temp / "to file");
  std::filesystem::create_directory_symlink(temp / "folder", temp / "to folder");
  CHECK(is_file(temp / "file"));
  CHECK_FALSE(is_folder(temp / "file"));
  CHECK(is_folder(temp / "folder"));
  CHECK_FALSE(is_file(temp / "folder"));
  for (const char* const name : {"to file", "to folder", "none"}) {
    CAPTURE(name);
    CHECK_FALSE(is_file(temp / name));
    CHECK_FALSE(is_folder(temp / name));
  }
  CHECK(type_of(temp / "to file") == std::filesystem::file_type::symlink);
  CHECK(type_of(temp / "none") == std::filesystem::file_type::not_found);
  const Path too_long = temp / std::string(300, 'x');
  CHECK(message_of<IoError>([&] { type_of(too_long); }) ==
        "cannot look at " + too_long.native() + ": File name too long");
}

TEST_CASE("paths: the entries of a folder are in their order; a folder that is not there has none") {
  const TempFolder temp;
  for (const char* const name : {"b", "a", "c", "B"}) write_file(temp / name, "x");
  CHECK(entries_of(temp.path()) == std::vector<Path>{temp / "B", temp / "a", temp / "b", temp / "c"});
  CHECK(entries_of(temp / "none").empty());
  CHECK(message_of<IoError>([&] { entries_of(temp / "a"); }) ==
        "cannot list " + (temp / "a").native() + ": Not a directory");
}

TEST_CASE("paths: a number behind a prefix is one as it is written") {
  CHECK(number_behind("checkpoint-", "runs/checkpoint-7") == 7);
  CHECK(number_behind("checkpoint-", "checkpoint-0") == 0);
  CHECK(number_behind("", "12") == 12);
  CHECK(number_behind("checkpoint-", "checkpoint-9223372036854775807") == std::numeric_limits<Index>::max());
  for (const char* const name :
       {"checkpoint-", "checkpoint-07", "checkpoint--1", "checkpoint-7 ", "checkpoint-7x", "checkpoint-x",
        "my-checkpoint-7", "checkpoint-9223372036854775808", "checkpoint-7/", "7", "checkpoint-+7"}) {
    CAPTURE(name);
    CHECK_FALSE(number_behind("checkpoint-", name));
  }
}

TEST_CASE("paths: the newest checkpoint is the one of the highest step that holds the file") {
  const TempFolder temp;
  const auto put = [&](const Path& name) {
    create_folders(temp / name);
    write_file(temp / name / "adapter", "x");
  };
  CHECK_FALSE(newest_checkpoint(temp.path(), "adapter"));
  CHECK_FALSE(newest_checkpoint(temp / "none", "adapter"));
  put("checkpoint-0");
  CHECK(newest_checkpoint(temp.path(), "adapter") == temp / "checkpoint-0");
  put("checkpoint-9");
  put("checkpoint-10");
  put("checkpoint-011");
  create_folder(temp / "checkpoint-12");
  CHECK(newest_checkpoint(temp.path(), "adapter") == temp / "checkpoint-10");
  CHECK_FALSE(newest_checkpoint(temp.path(), "weights"));
  create_folder(temp / "checkpoints");
  CHECK(newest_checkpoint(temp.path(), "adapter") == temp / "checkpoint-10");
  put("checkpoints/checkpoint-3");
  CHECK(newest_checkpoint(temp.path(), "adapter") == temp / "checkpoints/checkpoint-3");
  CHECK(newest_checkpoint(temp / "checkpoints", "adapter") == temp / "checkpoints/checkpoint-3");
}

TEST_CASE("paths: files are the same by what they are, not by their names") {
  const TempFolder temp;
  write_file(temp / "a", "x");
  write_file(temp / "b", "x");
  std::filesystem::create_hard_link(temp / "a", temp / "also a");
  const auto status = [](const Path& path) {
    struct stat found {};
    REQUIRE(::stat(path.c_str(), &found) == 0);
    return found;
  };
  CHECK(is_same(status(temp / "a"), status(temp / "also a")));
  CHECK_FALSE(is_same(status(temp / "a"), status(temp / "b")));
  struct stat elsewhere = status(temp / "a");
  ++elsewhere.st_dev;
  CHECK_FALSE(is_same(status(temp / "a"), elsewhere));
}

TEST_CASE("paths: the part of an input that lies in a place is the input, or the link in it that leads there") {
  const TempFolder temp;
  const Path place = temp / "place", input = temp / "input";
  create_folders(place / "deep/er");
  create_folders(input);
  write_file(place / "deep/er/file", "x");
  write_file(input / "own", "x");
  CHECK(input_within(place, place) == place);
  CHECK(input_within(place / "deep", place) == place / "deep");
  CHECK(input_within(place / "deep/er/file", place) == place / "deep/er/file");
  CHECK(input_within(place / "deep/er/file", place / "deep/er/file") == place / "deep/er/file");
  CHECK_FALSE(input_within(place, place / "deep"));
  CHECK_FALSE(input_within(input, place));
  CHECK_FALSE(input_within(input / "own", place));
  CHECK_FALSE(input_within(temp / "none", place));
  CHECK_FALSE(input_within(place, temp / "none"));
  CHECK(input_within(place, "/") == place);

  std::filesystem::create_symlink(input / "own", input / "a");
  std::filesystem::create_symlink(place / "deep/er/file", input / "b");
  std::filesystem::create_symlink("nowhere", input / "c");
  CHECK(input_within(input, place) == input / "b");
  CHECK_FALSE(input_within(input / "a", place));
  std::filesystem::create_directory_symlink(place / "deep", temp / "link");
  CHECK(input_within(temp / "link", place) == temp / "link");
  CHECK(input_within(place / "deep/er", temp / "link") == place / "deep/er");
}

}  // namespace paths_test
