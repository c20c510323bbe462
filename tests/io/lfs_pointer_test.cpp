#include "lora/io/files/lfs_pointer.hpp"

#include <doctest/doctest.h>

#include <string>

#include "lora/io/files/file.hpp"
#include "lora/io/files/mapped_file.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace lfs_pointer_test {

using namespace lora;

TEST_CASE("lfs_pointer: a pointer is called one, however the file is read") {
  const test::TempFolder folder;
  const io::Path path = folder / "model.safetensors";
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\n"
      "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
  io::write_file(path, std::string_view(pointer));
  const auto mapped = test::message_of<FormatError>([&] { const io::MappedFile file(path); });
  const auto read = test::message_of<FormatError>([&] { (void)io::read_file(path); });
  for (const auto& message : {mapped, read}) {
    CAPTURE(message);
    CHECK(message.starts_with(path.native() + ": this is a Git LFS pointer"));
    CHECK(message.find("git lfs pull") != std::string::npos);
  }
  // A text on pointers is no pointer.
  io::write_file(path, std::string_view(pointer + std::string(1024, 'x')));
  CHECK(io::read_file(path).size() == pointer.size() + 1024);
}

TEST_CASE("lfs_pointer: a pointer has fewer than 1024 bytes and begins by its version") {
  const std::string begin = "version https://git-lfs.github.com/spec/";
  const auto told = [](const std::string& content) {
    return test::message_of<FormatError>([&] { io::refuse_lfs_pointer("a/b", content); });
  };
  CHECK(told(begin + std::string(1023 - begin.size(), 'x')) ==
        "a/b: this is a Git LFS pointer, not the file itself; to fetch the file: 'git lfs pull' in its folder, or "
        "download it again");
  CHECK(told(begin) != "nothing was thrown");
  CHECK(told(begin + std::string(1024 - begin.size(), 'x')) == "nothing was thrown");
  CHECK(told(begin.substr(0, begin.size() - 1)) == "nothing was thrown");
  CHECK(told("\n" + begin) == "nothing was thrown");
  CHECK(told("") == "nothing was thrown");
}

}  // namespace lfs_pointer_test
