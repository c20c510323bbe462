#include "lora/io/files/file.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/files/mapped_file.hpp"
#include "lora/io/files/read_file.hpp"
#include "lora/io/files/scratch_file.hpp"
#include "support/file_faults.hpp"
#include "support/process.hpp"
#include "support/refused_operation.hpp"
#include "support/temp_folder.hpp"

namespace file_test {

using namespace lora;
using namespace lora::io;
using lora::test::Fault;
using lora::test::FileFaults;
using lora::test::RefusedOperation;
using lora::test::sweep_faults;
using lora::test::TempFolder;
using Kind = FileOperation::Kind;

namespace {

std::vector<std::string> names_in(const Path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// The message of the IoError that `call` throws.
template <class Call>
std::string io_error(Call&& call) {
  try {
    call();
  } catch (const IoError& error) {
    return error.what();
  }
  return "no IoError";
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("file: written content is read back, and only the file is left") {
  const TempFolder folder;
  const std::string text("line\n\0binary\xff", 13);
  write_file(folder / "a", text);
  CHECK(read_file(folder / "a") == text);
  write_file(folder / "a", "shorter");
  CHECK(read_file(folder / "a") == "shorter");
  write_file(folder / "empty", std::string_view());
  CHECK(read_file(folder / "empty").empty());
  CHECK(names_in(folder.path()) == Names{"a", "empty"});
}

TEST_CASE("file: no operation leaves a file open") {
  const TempFolder folder;
  const auto open_files = [] {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  const auto before = open_files();
  create_folders(folder / "a/b");
  write_file(folder / "a/b/file", "content");
  CHECK(read_file(folder / "a/b/file") == "content");
  CHECK(MappedFile(folder / "a/b/file").bytes().size() == 7);
  FileWriter(folder / "a/b/file", FileWriter::Mode::append).write("more");
  io::copy_file(folder / "a/b/file", folder / "copy");
  truncate_file(folder / "copy", 3);
  sync_folder(folder.path());
  CHECK_THROWS_AS(read_file(folder / "a"), IoError);
  CHECK_THROWS_AS(write_file(folder / "a", "content"), IoError);
  Lock(folder / "a");
  {
    const Lock one(folder / "a");
    CHECK_THROWS_AS(Lock(folder / "a"), IoError);
  }
  CHECK_THROWS_AS(FileWriter(folder / "copy", FileWriter::Mode::device), IoError);
  CHECK_THROWS_AS(FileWriter("/dev/null", FileWriter::Mode::append), IoError);
  CHECK_THROWS_AS(MappedFile("/dev/null"), IoError);
  for (const Kind kind : {Kind::truncate, Kind::sync_folder, Kind::lock}) {
    const RefusedOperation refused(kind, EIO);
    if (kind == Kind::truncate) CHECK_THROWS_AS(truncate_file(folder / "copy", 1), IoError);
    if (kind == Kind::sync_folder) CHECK_THROWS_AS(sync_folder(folder.path()), IoError);
    if (kind == Kind::lock) CHECK_THROWS_AS(Lock(folder / "a"), IoError);
  }
  CHECK(open_files() == before);
  {
    AtomicFile file(folder / "settled");
    CHECK(open_files() == before + 1);
    file.settle();
    CHECK(open_files() == before);
  }
  io::remove_all(folder / "a");
  CHECK(open_files() == before);
}

TEST_CASE("file: what is open here is not in programs that are started") {
  const TempFolder folder = TempFolder::in_memory();
  const auto kept = [] {
    int open = 0, closed = 0;  // once another program runs
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      const int flags = ::fcntl(std::stoi(entry.path().filename().native()), F_GETFD);
      if (flags >= 0) ++((flags & FD_CLOEXEC) != 0 ? closed : open);
    }
    return std::pair(open, closed);
  };
  const auto before = kept();
  const FileWriter created(folder / "a"), appends(folder / "a", FileWriter::Mode::append),
      device("/dev/null", FileWriter::Mode::device);
  const FileReader reader(folder / "a");
  const Lock of_folder(folder.path()), of_file(folder / "a", Lock::Of::file);
  const ScratchFile scratch("nothing");
  const int unlinked = io::detail::create_and_unlink(folder.path());
  const auto now = kept();
  ::close(unlinked);
  CHECK(now.first == before.first);
  CHECK(now.second == before.second + 8);
}

TEST_CASE("file: who may read and write what is created is for the user's mask to say, but scratch files are private") {
  const TempFolder folder = TempFolder::in_memory();
  const mode_t former = ::umask(0);
  write_file(folder / "a", "x");
  FileWriter(folder / "b", FileWriter::Mode::append).write("x");
  create_folder(folder / "c");
  create_folders(folder / "d/e");
  const ScratchFile scratch("nothing");
  ::umask(former);
  const auto allowed = [&](const char* name) {
    return static_cast<int>(std::filesystem::status(folder / name).permissions());
  };
  CHECK(allowed("a") == 0666);
  CHECK(allowed("b") == 0666);
  CHECK(allowed("c") == 0777);
  CHECK(allowed("d/e") == 0777);
  struct stat status {};
  REQUIRE(::fstat(scratch.descriptor(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
}

TEST_CASE("file: nobody waits for the other end of a pipe, and what leads round in a circle is no link itself") {
  const TempFolder folder = TempFolder::in_memory();
  const Path pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(io_error([&] { FileWriter(pipe, FileWriter::Mode::append); }) ==
        "cannot create " + pipe.native() + ": No such device or address");
  CHECK(io_error([&] { truncate_file(pipe, 0); }) == "cannot open " + pipe.native() + ": No such device or address");
  CHECK_NOTHROW(Lock(pipe, Lock::Of::file));
  std::filesystem::create_symlink("round", folder / "round");
  CHECK(io_error([&] { FileWriter(folder / "round/a"); }) ==
        "cannot create " + (folder / "round/a").native() + ": Too many levels of symbolic links");
}

TEST_CASE("file: an atomic file without a commit leaves what was there") {
  const TempFolder folder;
  write_file(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    file.write("new");
    AtomicFile moved(std::move(file));
    moved.write("er");
  }
  CHECK(read_file(folder / "a") == "old");
  CHECK(names_in(folder.path()) == Names{"a"});
}

TEST_CASE("file: a write that goes wrong at any operation leaves the old content or the new") {
  for (const Fault fault : {Fault::fails, Fault::disk_full, Fault::short_write, Fault::dies, Fault::dies_mid_write,
                            Fault::loses_unsynced, Fault::loses_data}) {
    const TempFolder folder;
    bool returned = false;
    const auto prepare = [&](Index) {
      returned = false;
      write_file(folder / "a", "old content");
      for (const auto& name : names_in(folder.path()))
        if (name_of_temporary(name, Temporary::partial)) remove_file(folder / name);
    };
    const auto run = [&] {
      write_file(folder / "a", "the new content");
      returned = true;
    };
    const auto check = [&](Index at, bool reached) {
      CAPTURE(static_cast<int>(fault));
      CAPTURE(at);
      const std::string content = read_file(folder / "a");
      CHECK((content == "the new content" || (content == "old content" && !returned)));
      CHECK((returned || reached));
      const bool runs_on = fault == Fault::fails || fault == Fault::disk_full || fault == Fault::short_write;
      if (runs_on) CHECK(names_in(folder.path()) == Names{"a"});
    };
    // create, write, sync, rename, sync of the folder; a short write has a second part
    CHECK(sweep_faults(folder.path(), fault, prepare, run, check) == 5);
  }
}

TEST_CASE("file: a short write is continued") {
  const TempFolder folder;
  const FileFaults faults(folder.path(), Fault::short_write, 2);
  write_file(folder / "a", "0123456789");
  CHECK(read_file(folder / "a") == "0123456789");
  CHECK(faults.count() == 6);
}

TEST_CASE("file: errors name the path and the reason in one line") {
  const TempFolder folder;
  write_file(folder / "file", "x");
  const std::string base = folder.path().native();
  CHECK(io_error([&] { write_file(folder / "file/below", "x"); }) ==
        "cannot create " + base + "/file/below: Not a directory");
  CHECK(io_error([&] { write_file(folder / "absent/a", "x"); }) ==
        "cannot create " + base + "/absent/a: No such file or directory");
  CHECK(io_error([&] { write_file(folder.path(), "x"); }) == "cannot write " + base + ": Is a directory");
  CHECK(io_error([&] { create_folders(folder / "file/a/b"); }) ==
        "cannot create folder " + base + "/file/a/b: Not a directory");
  CHECK(io_error([&] { create_folders(folder / "file"); }) ==
        "cannot create folder " + base + "/file: Not a directory");
  CHECK(io_error([&] { read_file(folder / "absent"); }) ==
        "cannot open " + base + "/absent: No such file or directory");
  CHECK(io_error([&] { read_file(folder.path()); }) == "cannot read " + base + ": Is a directory");
  CHECK(io_error([&] { io::rename(folder / "absent", folder / "b"); }) ==
        "cannot rename " + base + "/absent to " + base + "/b: No such file or directory");
  CHECK(io_error([&] { io::copy_file(folder / "absent", folder / "b"); }) ==
        "cannot open " + base + "/absent: No such file or directory");
  CHECK(io_error([&] { truncate_file(folder / "absent", 1); }) ==
        "cannot open " + base + "/absent: No such file or directory");
  CHECK(io_error([&] { FileWriter(folder / "absent/log", FileWriter::Mode::append); }) ==
        "cannot create " + base + "/absent/log: No such file or directory");
  CHECK(io_error([&] { sync_folder(folder / "absent"); }) ==
        "cannot sync " + base + "/absent: No such file or directory");
  CHECK(io_error([&] { remove_file(folder / "file/below"); }) ==
        "cannot remove " + base + "/file/below: Not a directory");
  CHECK(io_error([&] { Lock lock(folder / "file"); }) == "cannot lock " + base + "/file: Not a directory");
  CHECK(names_in(folder.path()) == Names{"file"});
}

TEST_CASE("file: a file past the size limit is an error and leaves nothing") {
  const TempFolder folder;
  rlimit former{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &former) == 0);
  const auto former_action = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{100, former.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &tight) == 0);
  const std::string message = io_error([&] { write_file(folder / "a", std::string(200, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &former);
  std::signal(SIGXFSZ, former_action);
  CHECK(message == "cannot write " + (folder / "a").native() + ": File too large");
  CHECK(names_in(folder.path()).empty());
}

TEST_CASE("file: a full device is an error") {
  FileWriter writer("/dev/full", FileWriter::Mode::device);
  CHECK(io_error([&] { writer.write("x"); }) == "cannot write /dev/full: No space left on device");
}

TEST_CASE("file: a pipe is written to, not replaced") {
  const TempFolder folder;
  const Path pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const int reader = ::open(pipe.c_str(), O_RDWR | O_NONBLOCK);
  REQUIRE(reader >= 0);
  write_file(pipe, "words");
  char text[16];
  CHECK(::read(reader, text, sizeof text) == 5);
  ::close(reader);
  CHECK(std::filesystem::is_fifo(pipe));
  CHECK(names_in(folder.path()) == Names{"pipe"});
}

TEST_CASE("file: a writer appends after what is there") {
  const TempFolder folder;
  {
    FileWriter writer(folder / "log");
    writer.write("one\n");
    FileWriter moved(std::move(writer));
    moved.write("two\n");
    moved.sync();
    moved.close();
    moved.close();
  }
  FileWriter(folder / "log", FileWriter::Mode::append).write("three\n");
  CHECK(read_file(folder / "log") == "one\ntwo\nthree\n");
  truncate_file(folder / "log", 8);
  CHECK(read_file(folder / "log") == "one\ntwo\n");
  CHECK(io_error([&] { FileWriter(folder / "log"); }) ==
        "cannot create " + (folder / "log").native() + ": File exists");
}

TEST_CASE("file: what an appending writer synced survives a loss of power") {
  const TempFolder folder;
  {
    FileFaults faults(folder.path(), Fault::loses_unsynced, 0);
    create_folders(folder / "run");
    FileWriter writer(folder / "run/log");
    sync_folder(folder / "run");
    writer.write("kept");
    writer.sync();
    writer.write(" lost");
    FileWriter(folder / "run/no_name").sync();
  }
  CHECK(read_file(folder / "run/log") == "kept");
  CHECK(names_in(folder / "run") == Names{"log"});
}

TEST_CASE("file: a file cut by truncate_file stays cut") {
  const TempFolder folder;
  write_file(folder / "log", "0123456789");
  {
    FileFaults faults(folder.path(), Fault::loses_unsynced, 0);
    truncate_file(folder / "log", 4);
  }
  CHECK(read_file(folder / "log") == "0123");
}

TEST_CASE("file: folders are created down to the last and survive a loss of power") {
  const TempFolder folder;
  for (const char* name : {"a/b/c", "a/b/c/", "a/b/d/"}) {
    FileFaults faults(folder.path(), Fault::loses_unsynced, 0);
    create_folders(folder / name);
    create_folders(folder / name);
  }
  CHECK(std::filesystem::is_directory(folder / "a/b/c"));
  CHECK(std::filesystem::is_directory(folder / "a/b/d"));
}

TEST_CASE("file: remove_all counts each name and does not follow links") {
  const TempFolder folder;
  write_file(folder / "outside", "kept");
  create_folders(folder / "tree/deep");
  write_file(folder / "tree/deep/a", "x");
  write_file(folder / "tree/b", "x");
  std::filesystem::create_symlink(folder / "outside", folder / "tree/link");
  std::filesystem::create_directory_symlink(folder.path(), folder / "tree/loop");
  Index count = 0;
  {
    FileFaults faults(folder.path(), Fault::none, 0);
    io::remove_all(folder / "tree");
    count = faults.count();
  }
  CHECK(count == 6);
  CHECK(names_in(folder.path()) == Names{"outside"});
  CHECK_NOTHROW(io::remove_all(folder / "tree"));
  CHECK_FALSE(remove_file(folder / "tree"));
  CHECK(remove_file(folder / "outside"));
}

TEST_CASE("file: a removal that fails midway says so") {
  const TempFolder folder;
  create_folders(folder / "tree");
  write_file(folder / "tree/a", "x");
  write_file(folder / "tree/b", "x");
  FileFaults faults(folder.path(), Fault::fails, 2);
  CHECK(io_error([&] { io::remove_all(folder / "tree"); }) ==
        "cannot remove " + (folder / "tree/b").native() + ": Input/output error");
  CHECK(names_in(folder / "tree") == Names{"b"});
}

TEST_CASE("file: a copy has the same bytes") {
  const TempFolder folder;
  std::string text(3'000'000, 'x');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 % 251);
  write_file(folder / "a", text);
  write_file(folder / "empty", "");
  io::copy_file(folder / "a", folder / "b");
  io::copy_file(folder / "empty", folder / "c");
  CHECK(read_file(folder / "b") == text);
  CHECK(read_file(folder / "c").empty());
}

TEST_CASE("file: a lock keeps a second run out until it is released") {
  const TempFolder folder;
  {
    const Lock lock(folder.path());
    CHECK(io_error([&] { Lock second(folder.path()); }) ==
          "another run is using " + folder.path().native() + ": it holds the folder's lock");
  }
  CHECK_NOTHROW(Lock(folder.path()));
  CHECK(names_in(folder.path()).empty());
}

TEST_CASE("file: where the file system has no locks a warning says so") {
  struct NoLocks final : FileHook {
    FileVerdict before(const FileOperation& operation) override {
      return {operation.kind == FileOperation::Kind::lock ? ENOLCK : 0};
    }
    void after(const FileOperation&) override {}
  } hook;
  const TempFolder folder;
  std::string warning;
  const auto sink = log::set_sink([&](log::Level, std::string_view text) { warning = text; });
  set_file_hook(&hook);
  CHECK_NOTHROW(Lock(folder.path()));
  set_file_hook(nullptr);
  log::set_sink(sink);
  CHECK(warning.find("cannot lock " + folder.path().native()) != std::string::npos);
}

TEST_CASE("file: a writer of a device refuses a file that has come there, and one that appends what is no file") {
  const TempFolder folder = TempFolder::in_memory();
  const Path pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const int reader = ::open(pipe.c_str(), O_RDWR | O_NONBLOCK);
  REQUIRE(reader >= 0);
  CHECK(io_error([&] { FileWriter(pipe, FileWriter::Mode::append); }) ==
        "cannot append to " + pipe.native() + ": not a regular file");
  CHECK(io_error([&] { FileWriter(pipe, FileWriter::Mode::append, "the log"); }) ==
        "cannot append to the log: not a regular file");
  ::close(reader);
  write_file(folder / "file", "kept");
  CHECK(io_error([&] { FileWriter(folder / "file", FileWriter::Mode::device); }) ==
        "cannot write " + (folder / "file").native() + ": a file has come there meanwhile");
  CHECK(io_error([&] { FileWriter(folder / "none", FileWriter::Mode::device); }) ==
        "cannot create " + (folder / "none").native() + ": No such file or directory");
  CHECK(read_file(folder / "file") == "kept");
}

TEST_CASE("file: a writer that takes another's place writes there, and tells of it") {
  const TempFolder folder = TempFolder::in_memory();
  FileWriter one(folder / "one"), two(folder / "two");
  CHECK(one.path() == folder / "one");
  one.write("1");
  one = std::move(two);
  one.write("2");
  CHECK(one.path() == folder / "two");
  one.close();
  CHECK(read_file(folder / "one") == "1");
  CHECK(read_file(folder / "two") == "2");
  FileWriter log(folder / "log");
  FileWriter moved(std::move(log));
  CHECK(moved.path() == folder / "log");
}

TEST_CASE("file: errors of a file that has a temporary name name the one that it will have") {
  const TempFolder folder = TempFolder::in_memory();
  const std::string name = (folder / "a").native();
  for (const Kind kind : {Kind::create, Kind::write, Kind::sync}) {
    const RefusedOperation refused(kind, EIO);
    CHECK(io_error([&] { write_file(folder / "a", "x"); }) == concat("cannot ",
                                                                     kind == Kind::create  ? "create "
                                                                     : kind == Kind::write ? "write "
                                                                                           : "sync ",
                                                                     name, ": Input/output error"));
    CHECK(name_of_temporary(refused.paths.at(0), Temporary::partial) == "a");
  }
  CHECK(names_in(folder.path()).empty());
}

TEST_CASE("file: an atomic file tells where it goes, and where it is until then") {
  const TempFolder folder = TempFolder::in_memory();
  AtomicFile file(folder / "a");
  CHECK(file.path() == folder / "a");
  CHECK(name_of_temporary(file.partial(), Temporary::partial) == "a");
  CHECK(folder_of(file.partial()) == folder.path());
  CHECK_FALSE(file.direct());
  file.write("x");
  file.settle();
  CHECK(read_file(file.partial()) == "x");
  CHECK_FALSE(is_there(folder / "a"));
  RefusedOperation synced(Kind::sync_folder, 0);
  file.publish();
  CHECK(read_file(folder / "a") == "x");
  CHECK(names_in(folder.path()) == Names{"a"});
  CHECK(synced.paths.empty());
  AtomicFile direct("/dev/null");
  CHECK(direct.direct());
  CHECK(direct.path() == "/dev/null");
  CHECK(direct.partial() == "/dev/null");
  RefusedOperation renamed(Kind::rename, 0);
  direct.write("x");
  direct.commit();
  CHECK(renamed.paths.empty());
  { const AtomicFile unused("/dev/null"); }
  CHECK(std::filesystem::is_character_file("/dev/null"));
}

TEST_CASE("file: a link to a folder is refused as a folder") {
  const TempFolder folder = TempFolder::in_memory();
  create_folder(folder / "a");
  std::filesystem::create_directory_symlink(folder / "a", folder / "b");
  CHECK(io_error([&] { write_file(folder / "b", "x"); }) ==
        "cannot write " + (folder / "b").native() + ": Is a directory");
}

TEST_CASE("file: only what is longer loses its end") {
  const TempFolder folder = TempFolder::in_memory();
  write_file(folder / "a", "0123456789");
  RefusedOperation cut(Kind::truncate, 0);
  keep_begin(folder / "none", 3);
  keep_begin(folder / "a", 11);
  keep_begin(folder / "a", 10);
  CHECK(cut.paths.empty());
  keep_begin(folder / "a", 9);
  CHECK(read_file(folder / "a") == "012345678");
  CHECK(cut.paths == std::vector<Path>{folder / "a"});
  keep_begin(folder / "a", 0);
  CHECK(read_file(folder / "a").empty());
  CHECK(cut.done == 2);
  for (const Kind kind : {Kind::truncate, Kind::sync}) {
    const RefusedOperation refused(kind, EIO);
    CHECK(io_error([&] { truncate_file(folder / "a", 0); }) ==
          "cannot truncate " + (folder / "a").native() + ": Input/output error");
  }
}

TEST_CASE("file: a file is locked as a folder is, and its lock can be passed on") {
  const TempFolder folder = TempFolder::in_memory();
  write_file(folder / "a", "x");
  const auto told = [&] { return io_error([&] { Lock second(folder / "a", Lock::Of::file); }); };
  {
    Lock lock(folder / "a", Lock::Of::file);
    CHECK(lock.held());
    const std::string used = "another run is using " + (folder / "a").native() + ": it holds the file's lock";
    CHECK(told() == used);
    const Lock moved(std::move(lock));
    CHECK(moved.held());
    CHECK(told() == used);
  }
  CHECK(told() == "no IoError");
  std::filesystem::create_symlink(folder / "a", folder / "link");
  CHECK(io_error([&] { Lock lock(folder / "link", Lock::Of::file); }) ==
        "cannot lock " + (folder / "link").native() + ": Too many levels of symbolic links");
  const RefusedOperation refused(Kind::lock, EIO);
  CHECK(io_error([&] { Lock lock(folder.path()); }) ==
        "cannot lock " + folder.path().native() + ": Input/output error");
}

TEST_CASE("file: each way in which a file system says that it has no locks is no error") {
  const TempFolder folder = TempFolder::in_memory();
  std::string warning;
  const auto sink = log::set_sink([&](log::Level, std::string_view text) { warning = text; });
  bool held = false, moved_held = false;
  std::vector<std::string> reasons;
  for (const int error : {EBADF, ENOLCK, EOPNOTSUPP, ENOSYS}) {
    const RefusedOperation refused(Kind::lock, error);
    Lock lock(folder.path());
    held = held || lock.held();
    const Lock moved(std::move(lock));
    moved_held = moved_held || moved.held();
    reasons.push_back(std::exchange(warning, {}));
  }
  log::set_sink(sink);
  CHECK_FALSE(held);
  CHECK_FALSE(moved_held);
  const std::string start = "cannot lock " + folder.path().native() + " (";
  const std::string end = "): make sure that no other run uses it";
  // The system's own words for the four errors, the last one ENOSYS.
  CHECK(reasons == Names{start + "Bad file descriptor" + end, start + "No locks available" + end,
                         start + "Operation not supported" + end, start + "Function not implemented" + end});
}

TEST_CASE("file: what was moved has its names, its content and its temporary file still") {
  const TempFolder folder = TempFolder::in_memory();
  {
    FileWriter one(folder / "one", FileWriter::Mode::create, "the first"),
        two(folder / "two", FileWriter::Mode::create, "the second");
    FileWriter moved(std::move(one));
    const RefusedOperation refused(Kind::write, EIO);
    const auto told = [&] { return io_error([&] { moved.write("x"); }); };
    CHECK(told() == "cannot write the first: Input/output error");
    moved = std::move(two);
    CHECK(told() == "cannot write the second: Input/output error");
  }
  std::optional<AtomicFile> file(folder / "a");
  file->write("begin");
  const Path partial = file->partial();
  AtomicFile moved(std::move(*file));
  file.reset();
  moved.write(" and end");
  CHECK(moved.path() == folder / "a");
  CHECK(moved.partial() == partial);
  CHECK_FALSE(moved.direct());
  moved.commit();
  CHECK(read_file(folder / "a") == "begin and end");
  CHECK(names_in(folder.path()) == Names{"a", "one", "two"});
  const Path pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const int reader = ::open(pipe.c_str(), O_RDWR | O_NONBLOCK);
  REQUIRE(reader >= 0);
  const auto end = test::run_apart([&](int) {
    std::optional<AtomicFile> unfinished(folder / "b"), to_pipe(pipe);
    const AtomicFile taken(std::move(*unfinished)), direct(std::move(*to_pipe));
    unfinished.reset();
    to_pipe.reset();
    remove_unfinished();
    _exit(direct.direct() ? 0 : 1);
  });
  ::close(reader);
  CHECK(end.status == 0);
  CHECK(names_in(folder.path()) == Names{"a", "one", "pipe", "two"});
}

}  // namespace file_test
