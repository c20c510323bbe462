#include "lora/io/files/file_system.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lora/io/files/file.hpp"
#include "support/effort.hpp"
#include "support/message_of.hpp"
#include "support/refused_operation.hpp"
#include "support/temp_folder.hpp"

namespace file_system_test {

using namespace lora;
using namespace lora::io;
using test::message_of;
using test::RefusedOperation;
using test::TempFolder;
using Kind = FileOperation::Kind;

TEST_CASE("file_system: a call that a signal has interrupted is made again, with what is left to write of it") {
  const TempFolder temp = TempFolder::in_memory();
  const Path none;
  int calls = 0;
  const auto interrupted = [&](std::size_t) {
    errno = ++calls < 3 ? EINTR : EIO;
    return calls < 4 ? -1 : 0;
  };
  CHECK(io::detail::perform({Kind::sync, temp.path(), none}, interrupted) == -1);
  CHECK(calls == 3);
  RefusedOperation counted(Kind::sync, 0);
  CHECK(io::detail::perform({Kind::sync, temp.path(), none}, interrupted) == 0);
  CHECK(counted.done == 1);
  calls = 0;
  CHECK(io::detail::perform({Kind::sync, temp.path(), none}, interrupted) == -1);
  CHECK(counted.paths.size() == 2);
  CHECK(counted.done == 1);  // of what has failed no hook is told
}

TEST_CASE("file_system: a hook shortens writes only, and fails what it will before it is done") {
  struct Three final : FileHook {
    FileVerdict before(const FileOperation& operation) override {
      return operation.bytes == 99 ? FileVerdict{ENOSPC, 3} : FileVerdict{0, 3};
    }
    void after(const FileOperation&) override {}
  } hook;
  FileHook* const former = set_file_hook(&hook);
  const Path path = "x", none;
  const auto asked = [&](Kind kind, std::size_t bytes) {
    return io::detail::perform({kind, path, none, bytes}, [](std::size_t count) { return count; });
  };
  CHECK(asked(Kind::write, 8) == 3);
  CHECK(asked(Kind::write, 2) == 2);
  CHECK(asked(Kind::truncate, 8) == 8);
  CHECK(asked(Kind::truncate, 99) == -1);
  CHECK(errno == ENOSPC);
  CHECK(set_file_hook(former) == &hook);
}

TEST_CASE("file_system: the folder of a bare name is the one that the program is in") {
  CHECK(folder_of("a") == ".");
  CHECK(folder_of("a/b") == "a");
  CHECK(folder_of("/a") == "/");
  CHECK(folder_of("") == ".");
}

TEST_CASE("file_system: a folder that has nothing to sync is synced") {
  const TempFolder temp = TempFolder::in_memory();
  {
    const RefusedOperation refused(Kind::sync_folder, EINVAL);
    CHECK_NOTHROW(sync_folder(temp.path()));
  }
  const RefusedOperation refused(Kind::sync_folder, EIO);
  CHECK(message_of<IoError>([&] { sync_folder(temp.path()); }) ==
        "cannot sync " + temp.path().native() + ": Input/output error");
  CHECK(refused.paths == std::vector<Path>{temp.path()});
}

TEST_CASE("file_system: names are not exchanged where the file system can't, and other failures are errors") {
  const TempFolder temp = TempFolder::in_memory();
  const Path a = temp / "a", b = temp / "b";
  write_file(a, "1");
  write_file(b, "2");
  for (const int error : {EINVAL, ENOSYS, ENOTSUP}) {
    const RefusedOperation refused(Kind::exchange, error);
    CHECK_FALSE(exchange(a, b));
    CHECK(refused.paths == std::vector<Path>{a});
  }
  const RefusedOperation refused(Kind::exchange, EIO);
  CHECK(message_of<IoError>([&] { exchange(a, b); }) ==
        "cannot exchange " + a.native() + " with " + b.native() + ": Input/output error");
  CHECK(read_file(a) == "1");
}

TEST_CASE("file_system: what takes more room than there is says how much, rounded so that it is no less") {
  const TempFolder temp = TempFolder::in_memory();
  const std::string base = temp.path().native();
  const auto told = [&](std::uint64_t bytes) {
    return message_of<IoError>([&] { expect_room(temp.path(), bytes, "a model"); });
  };
  {
    const RefusedOperation full(Kind::measure, ENOSPC);
    const std::string start = "no room for a model in " + base + ": it takes ";
    CHECK(told(1) == start + "0.1 MiB, and 0 MiB are free");
    CHECK(told(3 << 20) == start + "3 MiB, and 0 MiB are free");
    CHECK(told((3 << 20) + 1) == start + "3.1 MiB, and 0 MiB are free");
    CHECK(told(std::uint64_t{5} << 29) == start + "2560 MiB, and 0 MiB are free");
  }
  {
    const RefusedOperation broken(Kind::measure, EIO);
    CHECK(told(1) == "cannot measure the disk of " + base + ": Input/output error");
  }
  CHECK(message_of<IoError>([&] { expect_room(temp / "none", 1, "x"); }) ==
        "cannot measure the disk of " + base + "/none: No such file or directory");
  CHECK_NOTHROW(expect_room(temp.path(), 0, "nothing"));
  // All that is free may be taken, as far as other programs leave it.
  const std::string message = told(std::uint64_t{1} << 62);
  const auto at = message.find(" MiB, and ");
  REQUIRE(at != message.npos);
  CHECK(message.substr(0, at).ends_with(": it takes 4398046511104"));
  const double shown = std::stod(message.substr(at + 10));
  const auto free = static_cast<double>(std::filesystem::space(temp.path()).available) / 0x1p20;
  CHECK(shown > free / 2);
  CHECK(shown < free * 2);
}

TEST_CASE("file_system: room that is kept for the administrator is nobody else's") {
  const TempFolder temp;
  const auto space = std::filesystem::space(temp.path());
  const std::uint64_t kept = space.free - space.available;
  if (kept < 64 << 20) {
    test::skipped("room that is kept for the administrator: this disk keeps none");
    return;
  }
  CHECK_THROWS_WITH_AS(expect_room(temp.path(), space.available + kept / 2, "a model"),
                       doctest::Contains("no room for a model"), IoError);
}

TEST_CASE("file_system: a folder that is created must not be there, but those above it may") {
  const TempFolder temp = TempFolder::in_memory();
  const std::string base = temp.path().native();
  create_folder(temp / "a");
  CHECK(message_of<IoError>([&] { create_folder(temp / "a"); }) == "cannot create folder " + base + "/a: File exists");
  CHECK(message_of<IoError>([&] { create_folder(temp / "b/c"); }) ==
        "cannot create folder " + base + "/b/c: No such file or directory");
  CHECK_NOTHROW(create_folders(""));
  RefusedOperation synced(Kind::sync_folder, 0);
  create_folders(temp / "a/b/c");
  CHECK(synced.paths == std::vector<Path>{temp / "a", temp / "a/b"});
  create_folders(temp / "a/b/c");
  CHECK(synced.done == 2);
  {
    const RefusedOperation quicker(Kind::create_folder, EEXIST);  // another process was
    CHECK_NOTHROW(create_folders(temp / "a/d"));
    CHECK(quicker.paths.size() == 1);
  }
  const RefusedOperation refused(Kind::create_folder, EACCES);
  CHECK(message_of<IoError>([&] { create_folders(temp / "a/e"); }) ==
        "cannot create folder " + base + "/a/e: Permission denied");
}

TEST_CASE("file_system: what is removed goes in the order of its names, the folder last") {
  const TempFolder temp = TempFolder::in_memory();
  create_folders(temp / "tree/b");
  for (const char* const name : {"c", "a", "b/x"}) write_file(temp / "tree" / name, "x");
  RefusedOperation removed(Kind::remove, 0);
  io::remove_all(temp / "tree");
  CHECK(removed.paths ==
        std::vector<Path>{temp / "tree/a", temp / "tree/b/x", temp / "tree/b", temp / "tree/c", temp / "tree"});
  CHECK(removed.done == 5);
}

TEST_CASE("file_system: a hook is told of each operation what it is done to, and of which how many bytes") {
  const TempFolder temp = TempFolder::in_memory();
  struct Told final : FileHook {
    explicit Told(const Path& folder) : base(folder) {}
    FileVerdict before(const FileOperation& operation) override {
      static constexpr const char* names[] = {"create",      "write",    "sync",   "truncate",
                                              "rename",      "exchange", "remove", "create_folder",
                                              "sync_folder", "lock",     "measure"};
      std::string line = concat(names[static_cast<std::size_t>(operation.kind)], " ",
                                operation.path.lexically_relative(base).native());
      if (!operation.target.empty()) line += " to " + operation.target.lexically_relative(base).native();
      if (operation.bytes > 0) line += concat(", ", operation.bytes, " bytes");
      if (operation.keeps) line += ", kept";
      lines.push_back(line);
      return {};
    }
    void after(const FileOperation&) override { ++done; }
    Path base;
    std::vector<std::string> lines;
    std::size_t done = 0;
  } told(temp.path());
  FileHook* const former = set_file_hook(&told);
  create_folder(temp / "c");
  {
    FileWriter writer(temp / "a");
    writer.write("12345");
    writer.sync();
  }
  { const FileWriter writer(temp / "a", FileWriter::Mode::append); }
  truncate_file(temp / "a", 3);
  io::rename(temp / "a", temp / "b");
  const bool exchanged = exchange(temp / "b", temp / "c");
  remove_file(temp / "none");
  sync_folder(temp.path());
  { const Lock lock(temp.path()); }
  expect_room(temp.path(), 7, "x");
  create_folders(temp / "d/e");
  set_file_hook(former);
  CHECK(told.lines == std::vector<std::string>{"create_folder c", "create a", "write a, 5 bytes", "sync a",
                                               "create a, kept", "truncate a, 3 bytes", "sync a", "rename a to b",
                                               "exchange b to c", "remove none", "sync_folder .", "lock .",
                                               "measure ., 7 bytes", "create_folder d", "sync_folder .",
                                               "create_folder d/e", "sync_folder d"});
  CHECK(told.done == told.lines.size() - (exchanged ? 1 : 2));  // but the removal, and what can't be exchanged
}

}  // namespace file_system_test
