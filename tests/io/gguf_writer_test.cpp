// GGUF files as they are written: metadata, places of tensors, what is refused, and that nothing is left of a file that
// was not committed.

#include "lora/io/formats/gguf_writer.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/gguf_writer.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace gguf_writer_test {

using namespace lora;

namespace {

std::span<const std::byte> bytes_of_text(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

TEST_CASE("gguf writer: a file has its metadata in order and its tensors aligned, the fastest extent first") {
  const test::TempFolder temp;
  const io::Path file = temp / "m.gguf";
  const std::string twelve(12, 'a'), block(34, 'b');
  io::GgufMetadata metadata;
  metadata.add("general.architecture", "llama");
  metadata.add("flag", true);
  metadata.add("count", std::uint32_t{7});
  metadata.add("number", -3);
  metadata.add("half", 0.5f);
  metadata.add("words", std::vector<std::string>{"a", "", "bc"});
  metadata.add("numbers", std::vector<std::int32_t>{1, -2});
  metadata.add("scores", std::vector<float>{1.5f});
  io::GgufWriter writer(file, metadata, {{"three", DType::f16, {3, 2}}, {"block", DType::q8_0, {1, 32}}});
  writer.add("three", bytes_of_text(twelve).first(5));
  writer.add("three", bytes_of_text(twelve).subspan(5));
  writer.add("block", bytes_of_text(block));
  CHECK_FALSE(std::filesystem::exists(file));
  writer.commit();
  CHECK(writer.size() == std::filesystem::file_size(file));

  test::GgufWriter expected;
  expected.add("general.architecture", "llama");
  expected.add("flag", true);
  expected.add("count", std::uint32_t{7});
  expected.add("number", std::int32_t{-3});
  expected.add("half", 0.5f);
  expected.add("words", std::vector<std::string>{"a", "", "bc"});
  expected.add("numbers", std::vector<std::int32_t>{1, -2});
  expected.add("scores", std::vector<float>{1.5f});
  expected.add_tensor("three", {2, 3}, 1, twelve);
  expected.add_tensor("block", {32, 1}, 8, block + std::string(30, '\0'));  // the end is aligned as well
  CHECK(io::read_file(file) == expected.bytes());

  const auto read = io::Gguf::open(file);
  REQUIRE(read.find("three") != nullptr);
  CHECK(read.find("three")->shape == Shape{3, 2});
  CHECK(read.find("block")->dtype == DType::q8_0);
  CHECK(read.at<std::vector<std::string>>("words") == std::vector<std::string>{"a", "", "bc"});
}

TEST_CASE("gguf writer: every type of weights has its number") {
  const test::TempFolder temp;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::q8_0, DType::q4_0, DType::q4_k, DType::q6_k}) {
    const io::Path file = temp / "m.gguf";
    io::GgufWriter writer(file, {}, {{"t", dtype, {1, 256}}});
    writer.add("t", bytes_of_text(std::string(static_cast<std::size_t>(bytes_of(dtype, 256)), 'x')));
    writer.commit();
    CHECK(io::Gguf::open(file).find("t")->dtype == dtype);
    std::filesystem::remove(file);
  }
}

TEST_CASE("gguf writer: what a file can't hold, data out of order and missing data are errors, and leave nothing") {
  const test::TempFolder temp;
  const io::Path file = temp / "m.gguf";
  const std::string where = file.native() + ": tensor ";
  const auto message = [&](const std::vector<io::TensorDeclaration>& tensors, auto&& use) {
    return test::message_of<FormatError>([&] {
      io::GgufWriter writer(file, {}, tensors);
      use(writer);
    });
  };
  const auto nothing = [](io::GgufWriter&) {};
  const std::vector<io::TensorDeclaration> two = {{"a", DType::f32, {1}}, {"b", DType::f32, {1}}};
  CHECK(message({{"a", DType::i8, {1}}}, nothing) == where + "a: GGUF cannot hold I8");
  CHECK(message({{"a", DType::q8_0, {2, 33}}}, nothing) == where + "a: rows of (2, 33) are not whole blocks of Q8_0");
  CHECK(message({{"b", DType::f32, {}}}, nothing) == where + "b: rows of () are not whole blocks of F32");
  CHECK(message({two[0], two[0]}, nothing) == where + "a: this name is declared twice");
  CHECK(message(two, [](io::GgufWriter& writer) { writer.add("b", bytes_of_text("1234")); }) ==
        where + "b: data given out of order; the next tensor is a");
  CHECK(message(two, [](io::GgufWriter& writer) { writer.add("a", bytes_of_text("12345")); }) ==
        where + "a: 5 bytes given where 4 are left");
  CHECK(message(two, [](io::GgufWriter& writer) {
          writer.add("a", bytes_of_text("1234"));
          writer.commit();
        }) == where + "b: its data are not complete");
  CHECK(std::filesystem::is_empty(temp.path()));
}

}  // namespace gguf_writer_test
