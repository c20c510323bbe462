#include "lora/io/files/temporary.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include "lora/io/files/file.hpp"
#include "support/process.hpp"
#include "support/temp_folder.hpp"

namespace temporary_test {

using namespace lora;
using namespace lora::io;
using lora::test::TempFolder;

TEST_CASE("temporary: a name is told from all others, and no two are the same") {
  std::set<Path> names;
  for (int i = 0; i < 100; ++i) names.insert(temporary_name("run/final_model", Temporary::writing));
  CHECK(names.size() == 100);
  for (const Path& name : names) {
    CHECK(name.parent_path() == "run");
    CHECK(name_of_temporary(name, Temporary::writing) == "final_model");
    CHECK_FALSE(name_of_temporary(name, Temporary::removing));
    CHECK(name.filename().native().size() == std::string("final_model..lora-writing").size() + 16 + 8);
    std::string changed = name.filename().native();
    changed[0] = 'F';
    CHECK_FALSE(name_of_temporary(changed, Temporary::writing));
  }
  for (const char* name : {"", "x", ".lora-writing", "a.writing", "a.0123456789abcdef01234567.lora-writing",
                           "0123456789abcdef01234567.lora-writing"})
    CHECK_FALSE(name_of_temporary(name, Temporary::writing));
  const std::string longest(255, 'x');
  CHECK(temporary_name(longest, Temporary::partial).native().size() <= 255);
}

TEST_CASE("temporary: a file is never written through a name that is there, nor through a link") {
  const TempFolder folder;
  write_file(folder / "victim", "kept");
  for (const char* name : {"o.jsonl", "log"}) std::filesystem::create_symlink(folder / "victim", folder / name);
  std::filesystem::create_symlink("nowhere", folder / "dangling");
  const std::string refusal = ": it is a link, which is not followed";
  const auto error = [&](const auto& call) -> std::string {
    try {
      call();
    } catch (const IoError& thrown) {
      return thrown.what();
    }
    return "no error";
  };
  CHECK(error([&] { write_file(folder / "o.jsonl", "x"); }) ==
        "cannot write " + (folder / "o.jsonl").native() + refusal);
  CHECK(error([&] { write_file(folder / "dangling", "x"); }) ==
        "cannot write " + (folder / "dangling").native() + refusal);
  CHECK(error([&] { FileWriter(folder / "log", FileWriter::Mode::append); }) ==
        "cannot create " + (folder / "log").native() + refusal);
  CHECK(error([&] { truncate_file(folder / "log", 0); }) == "cannot open " + (folder / "log").native() + refusal);
  CHECK(error([&] { FileWriter(folder / "victim"); }).ends_with("File exists"));
  CHECK(read_file(folder / "victim") == "kept");
  // A device may have a link, as /dev/stdout is one.
  std::filesystem::create_symlink("/dev/null", folder / "null");
  CHECK_NOTHROW(write_file(folder / "null", "x"));
}

TEST_CASE("temporary: the handler of a signal can remove what is unfinished, and nothing else") {
  const TempFolder folder;
  write_file(folder / "kept", "kept");
  const auto end = test::run_apart([&](int) {
    AtomicFile file(folder / "file");
    file.write("half");
    const Path part = temporary_name(folder / "whole", Temporary::writing);
    const Unfinished unfinished(part);
    create_folder(part);
    for (int i = 0; i < 300; ++i) write_file(part / concat("file with a long name ", i), "x");
    {
      AtomicFile done(folder / "done");
      done.commit();
    }
    remove_unfinished();
    _exit(0);
  });
  CHECK(end.status == 0);
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) names.insert(entry.path().filename());
  CHECK(names == std::set<std::string>{"done", "kept"});
}

TEST_CASE("temporary: two writers of one file don't mix") {
  const TempFolder folder;
  AtomicFile one(folder / "a"), two(folder / "a");
  one.write("one");
  two.write("two");
  two.commit();
  CHECK(read_file(folder / "a") == "two");
  one.commit();
  CHECK(read_file(folder / "a") == "one");
}

TEST_CASE("temporary: two names are exchanged at once") {
  const TempFolder folder;
  write_file(folder / "a", "1");
  create_folders(folder / "b");
  if (!exchange(folder / "a", folder / "b")) return;  // not every file system can
  CHECK(read_file(folder / "b") == "1");
  CHECK(std::filesystem::is_directory(folder / "a"));
  CHECK_THROWS_AS(exchange(folder / "a", folder / "absent"), IoError);
}

TEST_CASE("temporary: a disk without room is told before anything is written") {
  const TempFolder folder;
  CHECK_NOTHROW(expect_room(folder.path(), 1, "a file"));
  CHECK_THROWS_WITH_AS(expect_room(folder.path(), std::uint64_t{1} << 62, "a file"),
                       doctest::Contains(("no room for a file in " + folder.path().native()).c_str()), IoError);
}

TEST_CASE("temporary: a name of two hundred bytes is held whole, of a longer one the begin and a hash") {
  const std::string most(200, 'x');
  CHECK(held_name(most) == most);
  CHECK(held_name("").empty());
  const std::string held = held_name(most + "y");
  CHECK(held.substr(0, 184) == most.substr(0, 183) + "~");
  CHECK(held.substr(184) == checksum_text(text_hash(most + "y")));
  CHECK(held_name(most + "z") != held);
  // A character of three bytes, of which the first two or the first would stay.
  for (const std::size_t before : {181u, 182u}) {
    const std::string name = std::string(before, 'x') + "\u4E2D" + std::string(100, 'y');
    CHECK(held_name(name).substr(0, before + 1) == std::string(before, 'x') + "~");
  }
  CHECK(held_name(std::string(180, 'x') + "\u4E2D" + std::string(100, 'y')).substr(0, 184) ==
        std::string(180, 'x') + "\u4E2D~");
}

TEST_CASE("temporary: each kind has a mark of its own, and a long name is found again in its held form") {
  const std::string marks[] = {".lora-partial", ".lora-writing", ".lora-replaced", ".lora-removing"};
  const Temporary kinds[] = {Temporary::partial, Temporary::writing, Temporary::replaced, Temporary::removing};
  for (std::size_t i = 0; i < 4; ++i) {
    const Path name = temporary_name("a/b", kinds[i]);
    CHECK(name.native().ends_with(marks[i]));
    for (std::size_t j = 0; j < 4; ++j) {
      const auto found = name_of_temporary(name, kinds[j]);
      CHECK(found.has_value() == (i == j));
      if (found) CHECK(*found == "b");
    }
  }
  const std::string longest(255, 'x');
  CHECK(name_of_temporary(temporary_name(longest, Temporary::writing), Temporary::writing) == held_name(longest));
  CHECK(name_of_temporary(temporary_name("x", Temporary::writing), Temporary::writing) == "x");
  CHECK_FALSE(name_of_temporary(temporary_name("", Temporary::writing), Temporary::writing));
  std::string name = temporary_name("a", Temporary::partial).native();
  for (const std::size_t at : {std::size_t{2}, name.size() - std::string(".lora-partial").size() - 1}) {
    std::string changed = name;
    changed[at] = changed[at] == '0' ? '1' : '0';
    CHECK_FALSE(name_of_temporary(changed, Temporary::partial));
  }
}

TEST_CASE("temporary: what is finished is removed no more, what is none was never there") {
  const TempFolder folder;
  write_file(folder / "a", "x");
  write_file(folder / "b", "x");
  write_file(folder / "c", "x");
  create_folders(folder / "d/deep");
  write_file(folder / "d/file", "x");
  const auto end = test::run_apart([&](int) {
    Unfinished a(folder / "a"), c(folder / "c");
    const Unfinished b(folder / "b"), d(folder / "d"), none(folder / "none");
    const Unfinished too_long(folder / std::string(5000, 'x'));
    a.finish();
    Unfinished moved(std::move(c));
    remove_unfinished();
    _exit(0);
  });
  CHECK(end.status == 0);
  CHECK(std::filesystem::exists(folder / "a"));
  CHECK_FALSE(std::filesystem::exists(folder / "b"));
  CHECK_FALSE(std::filesystem::exists(folder / "c"));
  CHECK_FALSE(std::filesystem::exists(folder / "d/file"));
  CHECK(std::filesystem::exists(folder / "d/deep"));  // only files are removed of a folder
}

}  // namespace temporary_test
