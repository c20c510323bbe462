#include "lora/io/files/atomic_folder.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/effort.hpp"
#include "support/message_of.hpp"
#include "support/process.hpp"
#include "support/refused_operation.hpp"
#include "support/temp_folder.hpp"

namespace atomic_folder_test {

using namespace lora;
using namespace lora::io;
using test::TempFolder;

namespace {

/// Has another process look at the folder, before and after each operation on it, for as long as it lives.
class Watched final : public FileHook {
 public:
  Watched(std::function<void()> other, bool exchanges)
      : other_(std::move(other)), exchanges_(exchanges), former_(set_file_hook(this)) {}
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  ~Watched() override { set_file_hook(former_); }

  FileVerdict before(const FileOperation& operation) override {
    look();
    return {operation.kind == FileOperation::Kind::exchange && !exchanges_ ? EINVAL : 0};
  }
  void after(const FileOperation&) override { look(); }

 private:
  void look() {
    FileHook* const own = set_file_hook(nullptr);
    other_();
    set_file_hook(own);
  }

  std::function<void()> other_;
  bool exchanges_;
  FileHook* former_;
};

std::string stranger(const Path&) { return {}; }

/// Fails what is asked of it, and may do something before.
class Failing final : public FileHook {
 public:
  using Kind = FileOperation::Kind;

  explicit Failing(std::function<int(const FileOperation&)> error)
      : error_(std::move(error)), former_(set_file_hook(this)) {}
  Failing(const Failing&) = delete;
  Failing& operator=(const Failing&) = delete;
  ~Failing() override { set_file_hook(former_); }

  FileVerdict before(const FileOperation& operation) override { return {error_(operation)}; }
  void after(const FileOperation&) override {}

 private:
  std::function<int(const FileOperation&)> error_;
  FileHook* former_;
};

/// Writes a folder that holds one file.
void write_weights(const Path& place, std::string_view text) {
  write_whole_folder(place, stranger, [&](const Path& folder) { write_file(folder / "weights", text); });
}

}  // namespace

TEST_CASE("atomic folder: one that is replaced is neither put back nor lost while another process clears up") {
  for (const bool exchanges : {true, false}) {
    CAPTURE(exchanges);
    const TempFolder temp;
    const Path place = temp / "model";
    write_whole_folder(place, stranger, [](const Path& folder) { write_file(folder / "weights", "old"); });
    std::optional<Lock> lock;  // as clear_killed wants it of who writes
    std::optional<Watched> watched;
    bool seen_away = false;
    write_whole_folder(place, stranger, [&](const Path& folder) {
      lock.emplace(folder);
      const auto clear = [&] {
        seen_away = seen_away || !is_there(place);
        clear_killed(place);
      };
      watched.emplace(clear, exchanges);
      write_file(folder / "weights", "new");
    });
    watched.reset();
    CHECK(read_file(place / "weights") == "new");
    CHECK(entries_of(temp.path()) == std::vector<Path>{place});
    CHECK(seen_away != exchanges);
  }
}

TEST_CASE("atomic folder: where another takes the place while the old one is away, that is the error, and it stays") {
  const TempFolder temp;
  const Path place = temp / "model";
  write_whole_folder(place, stranger, [](const Path& folder) { write_file(folder / "weights", "old"); });
  std::optional<Watched> watched;
  const std::string message = test::message_of<IoError>([&] {
    write_whole_folder(place, stranger, [&](const Path& folder) {
      write_file(folder / "weights", "new");
      const auto take_place = [&] {
        if (is_there(place)) return;
        create_folder(place);
        write_file(place / "weights", "another's");
      };
      watched.emplace(take_place, false);
    });
  });
  watched.reset();
  CHECK(test::holds(message, concat("rename ", temp.path().native())));
  CHECK(test::holds(message, ".lora-writing to"));
  CHECK(read_file(place / "weights") == "another's");
}

TEST_CASE("atomic folder: a folder that another wrote is in the way, before anything is written and after") {
  const TempFolder temp = TempFolder::in_memory();
  const Path place = temp / "model";
  create_folder(place);
  write_file(place / "mine", "kept");
  const auto other = [](const Path& folder) { return entries_of(folder).empty() ? "" : std::string("it has a file"); };
  const std::string expected = place.native() + " is in the way: it has a file; move it elsewhere";
  bool written = false;
  CHECK(test::message_of<IoError>([&] { write_whole_folder(place, other, [&](const Path&) { written = true; }); }) ==
        expected);
  CHECK_FALSE(written);
  CHECK(test::message_of<IoError>([&] { remove_whole_folder(place, other); }) == expected);
  CHECK(read_file(place / "mine") == "kept");
  io::remove_all(place);
  CHECK(test::message_of<IoError>([&] {
          write_whole_folder(place, other, [&](const Path& folder) {
            write_file(folder / "weights", "new");
            create_folder(place);
            write_file(place / "mine", "came meanwhile");
          });
        }) == expected);
  CHECK(read_file(place / "mine") == "came meanwhile");
  CHECK(entries_of(temp.path()) == std::vector<Path>{place});
}

TEST_CASE("atomic folder: a folder whose writing fails leaves nothing, and what was there") {
  const TempFolder temp = TempFolder::in_memory();
  const Path place = temp / "deep/model";
  const auto fails = [](const Path& folder) {
    write_file(folder / "weights", "half");
    fail<IoError>("no more");
  };
  CHECK(test::message_of<IoError>([&] { write_whole_folder(place, stranger, fails); }) == "no more");
  CHECK(entries_of(temp / "deep").empty());
  write_whole_folder(place, stranger, [&](const Path& folder) {
    CHECK(name_of_temporary(folder, Temporary::writing) == "model");
    CHECK(folder_of(folder) == temp / "deep");
    write_file(folder / "weights", "old");
  });
  CHECK(test::message_of<IoError>([&] { write_whole_folder(place, stranger, fails); }) == "no more");
  CHECK(entries_of(temp / "deep") == std::vector<Path>{place});
  CHECK(read_file(place / "weights") == "old");
  {
    const test::RefusedOperation refused(FileOperation::Kind::remove, EIO);
    CHECK(test::message_of<IoError>([&] { write_whole_folder(place, stranger, fails); }) == "no more");
  }
  CHECK(entries_of(temp / "deep").size() == 2);
  CHECK(read_file(place / "weights") == "old");
}

TEST_CASE("atomic folder: what is written, replaced or removed is durable before it is done") {
  const TempFolder temp = TempFolder::in_memory();
  const Path place = temp / "model";
  const auto write = [](const Path& folder) { write_file(folder / "weights", "x"); };
  {
    test::RefusedOperation synced(FileOperation::Kind::sync_folder, 0);
    write_whole_folder(place, stranger, write);
    REQUIRE(synced.paths.size() == 3);
    CHECK(name_of_temporary(synced.paths[0], Temporary::writing) == "model");  // by the file in it
    CHECK(name_of_temporary(synced.paths[1], Temporary::writing) == "model");
    CHECK(synced.paths[2] == temp.path());
  }
  {
    test::RefusedOperation synced(FileOperation::Kind::sync_folder, 0);
    write_whole_folder(place, stranger, write);
    CHECK(synced.paths.back() == temp.path());
    CHECK(synced.done == 3);
  }
  write_weights(temp / "other", "x");
  {
    const test::RefusedOperation synced(FileOperation::Kind::sync_folder, 0);
    remove_whole_folder(temp / "other", stranger);
    CHECK(synced.paths == std::vector<Path>{temp.path()});
  }
  CHECK(entries_of(temp.path()) == std::vector<Path>{place});
  {
    const test::RefusedOperation refused(FileOperation::Kind::remove, EIO);
    CHECK_THROWS_AS(remove_whole_folder(place, stranger), IoError);
  }
  CHECK_FALSE(is_there(place));
  const std::vector<Path> left = entries_of(temp.path());
  REQUIRE(left.size() == 1);
  CHECK(name_of_temporary(left[0], Temporary::removing) == "model");
  remove_whole_folder(place, stranger);  // it is not there
  CHECK(entries_of(temp.path()).size() == 1);
}

TEST_CASE("atomic folder: what killed processes have left of one name goes, and no other's") {
  const TempFolder temp = TempFolder::in_memory();
  const Path place = temp / "model";
  std::vector<Path> kept;
  for (const Temporary kind : {Temporary::partial, Temporary::writing, Temporary::removing, Temporary::replaced}) {
    const Path file = temporary_name(place, kind), folder = temporary_name(place, kind);
    const Path other = temporary_name(temp / "model2", kind);
    write_file(file, "x");
    create_folders(folder / "deep");
    create_folder(other);
    kept.push_back(other);
    kept.push_back(kind == Temporary::partial ? folder : file);
    if (kind == Temporary::replaced) write_file(folder / "weights", "old");
  }
  write_file(temp / "model.lora-partial", "x");
  kept.push_back(temp / "model.lora-partial");
  {
    const test::RefusedOperation synced(FileOperation::Kind::sync_folder, 0);
    clear_killed(place);
    CHECK(synced.paths == std::vector<Path>{temp.path()});  // the one that was put back stays
  }
  CHECK(read_file(place / "weights") == "old");
  kept.push_back(place);
  std::sort(kept.begin(), kept.end());
  CHECK(entries_of(temp.path()) == kept);

  const Path again = temporary_name(place, Temporary::replaced);
  create_folder(again);
  write_file(again / "weights", "older");
  clear_killed(place);
  CHECK(read_file(place / "weights") == "old");
  CHECK(entries_of(temp.path()) == kept);
}

TEST_CASE("atomic folder: what a writer holds a lock on stays") {
  const TempFolder temp = TempFolder::in_memory();
  const Path place = temp / "model";
  const Path file = temporary_name(place, Temporary::partial), folder = temporary_name(place, Temporary::writing);
  write_file(file, "x");
  create_folder(folder);
  {
    const Lock one(file, Lock::Of::file), two(folder);
    clear_killed(place);
    CHECK(entries_of(temp.path()).size() == 2);
  }
  {
    const auto sink = log::set_sink(nullptr);
    {
      const test::RefusedOperation refused(FileOperation::Kind::lock, ENOLCK);
      clear_killed(place);
    }
    log::set_sink(sink);
    CHECK(entries_of(temp.path()).size() == 2);
  }
  clear_killed(place);
  CHECK(entries_of(temp.path()).empty());
}

TEST_CASE("atomic folder: the names of many are chosen by a rule") {
  const TempFolder temp = TempFolder::in_memory();
  for (const char* const name : {"checkpoint-1", "checkpoint-2", "final"})
    create_folder(temporary_name(temp / name, Temporary::writing));
  clear_unfinished(temp.path(), place_among([](const std::string& name) { return name.starts_with("checkpoint-"); }));
  const std::vector<Path> left = entries_of(temp.path());
  REQUIRE(left.size() == 1);
  CHECK(name_of_temporary(left[0], Temporary::writing) == "final");
  CHECK_NOTHROW(clear_unfinished(temp / "none", place_among([](const std::string&) { return true; })));
}

TEST_CASE("atomic folder: where it is unknown which of two folders a loss of power leaves, both stay") {
  for (const bool exchanges : {true, false}) {
    CAPTURE(exchanges);
    const TempFolder temp = TempFolder::in_memory();
    const Path place = temp / "model";
    const auto fails = [&](const FileOperation& operation) {
      if (operation.kind == Failing::Kind::exchange && !exchanges) return EINVAL;
      return operation.kind == Failing::Kind::sync_folder && operation.path == temp.path() ? EIO : 0;
    };
    const std::string expected = "cannot sync " + temp.path().native() + ": Input/output error";
    {
      const Failing failing(fails);
      CHECK(test::message_of<IoError>([&] { write_weights(place, "old"); }) == expected);
    }
    CHECK(entries_of(temp.path()) == std::vector<Path>{place});
    CHECK(read_file(place / "weights") == "old");
    {
      const Failing failing(fails);
      CHECK(test::message_of<IoError>([&] { write_weights(place, "new"); }) == expected);
    }
    CHECK(read_file(place / "weights") == "new");
    std::vector<Path> left = entries_of(temp.path());
    REQUIRE(left.size() == 2);
    const Path& former = left[left[0] == place ? 1 : 0];
    CHECK(name_of_temporary(former, exchanges ? Temporary::writing : Temporary::replaced) == "model");
    CHECK(read_file(former / "weights") == "old");
  }
}

TEST_CASE("atomic folder: where the new one can't take its place, the old one is put back") {
  const TempFolder temp = TempFolder::in_memory();
  const Path place = temp / "model";
  write_weights(place, "old");
  std::string message;
  {
    const Failing failing([&](const FileOperation& operation) {
      if (operation.kind == Failing::Kind::exchange) return EINVAL;
      const bool is_new = name_of_temporary(operation.path, Temporary::writing).has_value();
      return operation.kind == Failing::Kind::rename && is_new && operation.target == place ? EIO : 0;
    });
    message = test::message_of<IoError>([&] { write_weights(place, "new"); });
  }
  CHECK(message.ends_with(".lora-writing to " + place.native() + ": Input/output error"));
  CHECK(read_file(place / "weights") == "old");
  CHECK(entries_of(temp.path()) == std::vector<Path>{place});
}

TEST_CASE("atomic folder: a signal removes what is being written, but not while the old one is away") {
  const TempFolder temp = TempFolder::in_memory();
  const Path place = temp / "model";
  const auto end = [&](const auto& write) { return test::run_apart([&](int) { write(); }).status; };
  const auto die = [] {
    remove_unfinished();
    _exit(0);
  };
  CHECK(end([&] {
          write_whole_folder(place, stranger, [&](const Path& folder) {
            write_file(folder / "weights", "half");
            die();
          });
        }) == 0);
  CHECK(entries_of(temp.path()).empty());
  write_weights(place, "old");
  CHECK(end([&] {
          const Failing failing([&](const FileOperation& operation) {
            if (operation.kind == Failing::Kind::exchange) return EINVAL;
            if (operation.kind == Failing::Kind::rename && operation.target == place) die();
            return 0;
          });
          write_weights(place, "new");
        }) == 0);
  CHECK_FALSE(is_there(place));
  std::string left;
  for (const Path& entry : entries_of(temp.path()))
    for (const Temporary kind : {Temporary::writing, Temporary::replaced})
      if (name_of_temporary(entry, kind) == "model")
        left += concat(kind == Temporary::writing ? "writing " : "replaced ", read_file(entry / "weights"), ";");
  CHECK((left == "writing new;replaced old;" || left == "replaced old;writing new;"));
  clear_killed(place);
  CHECK(read_file(place / "weights") == "old");
  CHECK(entries_of(temp.path()) == std::vector<Path>{place});
}

TEST_CASE("atomic folder: what another user's process has left stays") {
  const TempFolder temp = TempFolder::in_memory();
  const Path place = temp / "model", folder = temporary_name(place, Temporary::writing);
  create_folder(folder);
  constexpr uid_t other = 12345;
  if (::geteuid() == other || ::chown(folder.c_str(), other, static_cast<gid_t>(-1)) != 0)
    return test::skipped("what another user's process has left: this user can't give folders away");
  clear_killed(place);
  CHECK(entries_of(temp.path()) == std::vector<Path>{folder});
  REQUIRE(::chown(folder.c_str(), ::geteuid(), static_cast<gid_t>(-1)) == 0);
  clear_killed(place);
  CHECK(entries_of(temp.path()).empty());
}

}  // namespace atomic_folder_test
