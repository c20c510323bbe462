#include "lora/io/lfs_pointer.hpp"

#include <doctest/doctest.h>

#include <string>

#include "lora/io/file.hpp"
#include "lora/io/mapped_file.hpp"
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

}  // namespace lfs_pointer_test
