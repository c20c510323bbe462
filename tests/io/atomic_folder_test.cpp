#include "lora/io/atomic_folder.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "support/message_of.hpp"
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

}  // namespace atomic_folder_test
