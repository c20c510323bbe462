#include "lora/io/formats/gguf.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lora/io/files/file.hpp"
#include "support/effort.hpp"
#include "support/gguf_writer.hpp"
#include "support/temp_folder.hpp"

namespace gguf_test {

using namespace lora;
using lora::io::Gguf;
using lora::io::StoredTensor;
using lora::test::GgufWriter;
using lora::test::TempFolder;

namespace {

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }

template <class Call>
std::string format_error(Call&& call) {
  try {
    call();
  } catch (const FormatError& error) {
    return error.what();
  }
  return "no FormatError";
}

std::string parse_message(const std::string& file) {
  return format_error([&] { Gguf::parse(bytes(file), "x"); });
}
std::string parse_message(const GgufWriter& writer) { return parse_message(writer.bytes()); }

/// The message with the byte that it names left out: "x: byte N: what" → "what".
std::string without_place(const std::string& message) {
  const std::string start = "x: byte ";
  REQUIRE(message.compare(0, start.size(), start) == 0);
  return message.substr(message.find(": ", start.size()) + 2);
}

std::string text_of(const StoredTensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()};
}

/// GGML's numbers.
constexpr std::uint32_t f32 = 0, half = 1, q4_0 = 2, q4_1 = 3, q5_0 = 6, q5_1 = 7, q8_0 = 8, q4_k = 12, q5_k = 13,
                        q6_k = 14, brain = 30;

/// One tensor of 4 floats at the start of the data, and another after it at `offset`.
std::string second_at(std::uint64_t offset, std::uint64_t extent = 4) {
  GgufWriter writer;
  writer.add_tensor("a", {4}, f32, std::string(16, 'a'));
  writer.add_tensor("pad", {8}, f32, std::string(32, 'p'));
  writer.add_tensor_at("b", {extent}, f32, offset);
  return parse_message(writer);
}

}  // namespace

TEST_CASE("gguf: metadata of every type") {
  GgufWriter writer;
  writer.add("u8", std::uint8_t{200});
  writer.add("i8", std::int8_t{-3});
  writer.add("u16", std::uint16_t{60000});
  writer.add("i16", std::int16_t{-300});
  writer.add("u32", std::uint32_t{4000000000u});
  writer.add("i32", std::int32_t{-70000});
  writer.add("u64", std::numeric_limits<std::uint64_t>::max());
  writer.add("i64", std::numeric_limits<std::int64_t>::min());
  writer.add("f32", 0.1f);
  writer.add("f64", 0.1);
  writer.add("yes", true);
  writer.add("no", false);
  writer.add("text", std::string("a\0\xc3\xa9", 4));
  writer.add("strings", std::vector<std::string>{"one", "", "three"});
  writer.add("floats", std::vector<float>{1.5f, -2.0f});
  writer.add("ints", std::vector<std::int32_t>{1, -2, 3});
  writer.add("none", std::vector<std::string>{});
  const std::string file = writer.bytes();
  const Gguf gguf = Gguf::parse(bytes(file), "x");

  CHECK(gguf.at<int>("u8") == 200);
  CHECK(gguf.at<int>("i8") == -3);
  CHECK(gguf.at<Index>("u16") == 60000);
  CHECK(gguf.at<Index>("i16") == -300);
  CHECK(gguf.at<Index>("u32") == 4000000000);
  CHECK(gguf.at<int>("i32") == -70000);
  CHECK(gguf.at<std::uint64_t>("u64") == std::numeric_limits<std::uint64_t>::max());
  CHECK(gguf.at<std::int64_t>("i64") == std::numeric_limits<std::int64_t>::min());
  CHECK(gguf.at<float>("f32") == 0.1f);
  CHECK(gguf.at<double>("f64") == 0.1);
  CHECK(gguf.at<float>("i8") == -3.0f);
  CHECK(gguf.at<bool>("yes"));
  CHECK_FALSE(gguf.at<bool>("no"));
  CHECK(gguf.at<std::string>("text") == std::string("a\0\xc3\xa9", 4));
  CHECK(gguf.at<std::vector<std::string>>("strings") == std::vector<std::string>{"one", "", "three"});
  CHECK(gguf.at<std::vector<float>>("floats") == std::vector<float>{1.5f, -2.0f});
  CHECK(gguf.at<std::vector<Index>>("ints") == std::vector<Index>{1, -2, 3});
  CHECK(gguf.at<std::vector<std::string>>("none").empty());
  CHECK(gguf.has("u8"));
  CHECK_FALSE(gguf.has("absent"));
  CHECK_FALSE(gguf.get<int>("absent").has_value());
}

TEST_CASE("gguf: a value of another kind or out of range is an error that names the key") {
  GgufWriter writer;
  writer.add("big", std::uint32_t{300});
  writer.add("minus", std::int32_t{-1});
  writer.add("f", 0.5f);
  writer.add("s", "text");
  writer.add("l", std::vector<std::int32_t>{1, -2});
  writer.add("one", std::vector<std::int32_t>{1});
  const std::string file = writer.bytes();
  const Gguf gguf = Gguf::parse(bytes(file), "x");
  CHECK(format_error([&] { gguf.at<int>("absent"); }) == "x: the key absent is missing");
  CHECK(format_error([&] { gguf.get<std::uint8_t>("big"); }) == "x: big is 300, which is out of range");
  CHECK(format_error([&] { gguf.get<std::uint64_t>("minus"); }) == "x: minus is -1, which is out of range");
  CHECK(format_error([&] { gguf.get<int>("f"); }) == "x: f must be an integer, found f32");
  CHECK(format_error([&] { gguf.get<float>("s"); }) == "x: s must be a number, found string");
  CHECK(format_error([&] { gguf.get<std::string>("f"); }) == "x: f must be a string, found f32");
  CHECK(format_error([&] { gguf.get<bool>("big"); }) == "x: big must be a bool, found u32");
  CHECK(format_error([&] { gguf.get<int>("l"); }) == "x: l is an array of i32, not one value");
  CHECK(format_error([&] { gguf.get<int>("one"); }) == "x: one is an array of i32, not one value");
  CHECK(format_error([&] { gguf.get<std::vector<int>>("big"); }) == "x: big must be an array, found one u32");
  CHECK(format_error([&] { gguf.get<std::vector<std::uint32_t>>("l"); }) == "x: l is -2, which is out of range");
}

TEST_CASE("gguf: tensors of every supported type, with the slowest extent first") {
  for (const std::uint32_t version : {2u, 3u}) {
    GgufWriter writer(version);
    writer.add_tensor("vector", {3}, f32, std::string(12, 'a'));
    writer.add_tensor("matrix", {2, 3}, half, std::string(12, 'b'));
    writer.add_tensor("cube", {2, 1, 3}, brain, std::string(12, 'c'));
    writer.add_tensor("eight", {64, 3}, q8_0, std::string(6 * 34, 'd'));
    writer.add_tensor("four", {32, 5}, q4_0, std::string(5 * 18, 'e'));
    writer.add_tensor("four_one", {32}, q4_1, std::string(20, 'f'));
    writer.add_tensor("five", {96, 2}, q5_0, std::string(6 * 22, 'g'));
    writer.add_tensor("five_one", {64}, q5_1, std::string(2 * 24, 'h'));
    writer.add_tensor("four_k", {256, 3}, q4_k, std::string(3 * 144, 'h'));
    writer.add_tensor("five_k", {512, 2}, q5_k, std::string(4 * 176, 'i'));
    writer.add_tensor("six_k", {256}, q6_k, std::string(210, 'j'));
    writer.add_tensor("empty", {32, 0}, q4_1, "");
    writer.add_tensor("scalar", {}, f32, "1234");
    const TempFolder folder;
    io::write_file(folder / "a.gguf", writer.bytes());
    const Gguf gguf = Gguf::open(folder / "a.gguf");
    const auto check = [&](const char* name, DType dtype, Shape shape, const std::string& data) {
      CAPTURE(name);
      const StoredTensor* tensor = gguf.find(name);
      REQUIRE(tensor);
      CHECK(tensor->name == name);
      CHECK(tensor->dtype == dtype);
      CHECK(tensor->shape == shape);
      CHECK(text_of(*tensor) == data);
      CHECK(tensor->file->path() == folder / "a.gguf");
    };
    check("vector", DType::f32, {3}, std::string(12, 'a'));
    check("matrix", DType::f16, {3, 2}, std::string(12, 'b'));
    check("cube", DType::bf16, {3, 1, 2}, std::string(12, 'c'));
    check("eight", DType::q8_0, {3, 64}, std::string(6 * 34, 'd'));
    check("four", DType::q4_0, {5, 32}, std::string(5 * 18, 'e'));
    check("four_one", DType::q4_1, {32}, std::string(20, 'f'));
    check("five", DType::q5_0, {2, 96}, std::string(6 * 22, 'g'));
    check("five_one", DType::q5_1, {64}, std::string(2 * 24, 'h'));
    check("four_k", DType::q4_k, {3, 256}, std::string(3 * 144, 'h'));
    check("five_k", DType::q5_k, {2, 512}, std::string(4 * 176, 'i'));
    check("six_k", DType::q6_k, {256}, std::string(210, 'j'));
    check("empty", DType::q4_1, {0, 32}, "");
    check("scalar", DType::f32, {}, "1234");
    CHECK(gguf.find("absent") == nullptr);
    CHECK(gguf.tensors().size() == 13);
    CHECK(gguf.tensors().front().name == "vector");
  }
}

TEST_CASE("gguf: the alignment that the file states holds") {
  GgufWriter writer(3, 128);
  writer.add("general.alignment", std::uint32_t{128});
  writer.add_tensor("a", {1}, f32, "aaaa");
  writer.add_tensor("b", {1}, f32, "bbbb");
  const std::string file = writer.bytes();
  const Gguf gguf = Gguf::parse(bytes(file), "x");
  CHECK(text_of(*gguf.find("a")) == "aaaa");
  CHECK(text_of(*gguf.find("b")) == "bbbb");
  CHECK(gguf.find("a")->bytes.data() == bytes(file).data() + file.size() - 132);

  for (const std::uint32_t alignment : {0u, 3u, 48u}) {
    GgufWriter bad;
    bad.add("general.alignment", alignment);
    bad.add_tensor("a", {1}, f32, "aaaa");
    CHECK(parse_message(bad) == "x: general.alignment is " + std::to_string(alignment) + ", which is no power of two");
  }
  GgufWriter odd;
  odd.add_tensor("a", {1}, f32, "aaaa");
  odd.add_tensor_at("b", {1}, f32, 8);
  CHECK(parse_message(odd) == "x: tensor b begins at byte 8 of the data, which is no multiple of the alignment 32");
}

TEST_CASE("gguf: what is no GGUF file, or another version, is an error") {
  CHECK(parse_message("") == "x: byte 0: the file's mark takes 4 bytes, but only 0 are left");
  CHECK(parse_message("PK\3\4 and so on") == "x: not a GGUF file");
  CHECK(parse_message(GgufWriter(1)) == "x: GGUF version 1 is not supported; versions 2 and 3 are");
  CHECK(parse_message(GgufWriter(4)) == "x: GGUF version 4 is not supported; versions 2 and 3 are");
  CHECK(parse_message(GgufWriter(0x03000000)) ==
        "x: GGUF version 3, big-endian, is not supported; versions 2 and 3 are");
}

TEST_CASE("gguf: a file cut short anywhere is an error") {
  GgufWriter writer;
  writer.add("general.alignment", std::uint32_t{32});
  writer.add("text", "words");
  writer.add("strings", std::vector<std::string>{"one", "two"});
  writer.add("floats", std::vector<float>{1, 2});
  writer.add_tensor("a", {4}, f32, std::string(16, 'a'));
  writer.add_tensor("b", {32}, q8_0, std::string(34, 'b'));
  const std::string good = writer.bytes();
  REQUIRE(parse_message(good) == "no FormatError");
  for (std::size_t size = 0; size < good.size(); ++size) {
    CAPTURE(size);
    const std::vector<char> exact(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK(format_error([&] { Gguf::parse(std::as_bytes(std::span(exact)), "x"); }) != "no FormatError");
  }
  CHECK(parse_message(good.substr(0, good.size() - 1)) ==
        "x: tensor b takes 34 bytes from byte 32 of the data on, but there are only 65; the file is cut short");
}

TEST_CASE("gguf: absurd counts and lengths are errors, not allocations") {
  const std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t count : {huge, huge / 8 + 1, std::uint64_t{1} << 32}) {
    CAPTURE(count);
    const std::string number = std::to_string(count);
    GgufWriter tensors;
    tensors.tensor_count = count;
    CHECK(without_place(parse_message(tensors)).find("the table of tensors is said to have " + number + " items") == 0);
    GgufWriter pairs;
    pairs.pair_count = count;
    CHECK(without_place(parse_message(pairs)).find("the metadata is said to have " + number + " items") == 0);

    const auto with_value = [&](std::uint32_t type, std::uint32_t element) {
      std::string value;
      GgufWriter::put(value, type);
      if (type == 9) GgufWriter::put(value, element);
      GgufWriter::put(value, count);
      GgufWriter writer;
      writer.add_raw("key", value);
      return without_place(parse_message(writer));
    };
    CHECK(with_value(8, 0).find("key takes " + number + " bytes, but only ") == 0);
    CHECK(with_value(9, 8).find("key is said to have " + number + " items, but only ") == 0);
    CHECK(with_value(9, 4).find("key is said to have " + number + " items, but only ") == 0);
    CHECK(with_value(9, 0).find("key is said to have " + number + " items, but only ") == 0);

    GgufWriter name;
    name.pair_count = 1;
    std::string file = name.bytes().substr(0, 24);
    GgufWriter::put(file, count);
    file += std::string(64, 'k');
    CHECK(without_place(parse_message(file)) == "the name of a key takes " + number + " bytes, but only 64 are left");
  }
}

TEST_CASE("gguf: a table of tensors takes 24 bytes for each at the least") {
  GgufWriter writer;
  writer.add("key", "value");
  writer.tensor_count = (writer.bytes().size() - 16) / 24 + 1;  // what is left after the count itself
  CHECK(without_place(parse_message(writer)).find("the table of tensors is said to have ") == 0);
}

TEST_CASE("gguf: a string inside an array that runs past the end is an error") {
  std::string value;
  GgufWriter::put(value, std::uint32_t{9});
  GgufWriter::put(value, std::uint32_t{8});
  GgufWriter::put(value, std::uint64_t{2});
  GgufWriter::put(value, std::string("one"));
  GgufWriter::put(value, std::uint64_t{1000});
  GgufWriter writer;
  writer.add_raw("key", value);
  CHECK(without_place(parse_message(writer)).find("key takes 1000 bytes, but only ") == 0);
}

TEST_CASE("gguf: unknown value types, arrays of arrays and bools that are none are errors") {
  const auto with_value = [&](std::vector<std::uint32_t> words) {
    std::string value;
    for (const std::uint32_t word : words) GgufWriter::put(value, word);
    GgufWriter writer;
    writer.add_raw("key", value + std::string(64, '\2'));
    return without_place(parse_message(writer));
  };
  CHECK(with_value({13}) == "key has the unknown type 13");
  CHECK(with_value({9, 13, 1, 0}) == "key has the unknown type 13");
  CHECK(with_value({9, 9, 1, 0}) == "key is an array of arrays, which is not supported");
  CHECK(with_value({7}) == "key holds a bool that is neither 0 nor 1");
  CHECK(with_value({9, 7, 2, 0}) == "key holds a bool that is neither 0 nor 1");
}

TEST_CASE("gguf: keys and tensors that appear twice are errors") {
  GgufWriter keys;
  keys.add("key", 1);
  keys.add("key", 2);
  CHECK(parse_message(keys) == "x: the key key appears twice");
  GgufWriter tensors;
  tensors.add_tensor("a", {1}, f32, "aaaa");
  tensors.add_tensor("b", {1}, f32, "bbbb");
  tensors.add_tensor("a", {1}, f32, "aaaa");
  CHECK(parse_message(tensors) == "x: tensor a appears twice");
}

TEST_CASE("gguf: a tensor type that is not supported is named as GGML names it") {
  const auto message = [](std::uint32_t type) {
    GgufWriter writer;
    writer.add_tensor("blk.0.attn_q.weight", {256}, type, std::string(1024, 'x'));
    return parse_message(writer);
  };
  const auto expected = [](const std::string& type) {
    return "x: tensor blk.0.attn_q.weight has the type " + type +
           ", which is not supported; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K are";
  };
  CHECK(message(9) == expected("Q8_1"));
  CHECK(message(10) == expected("Q2_K"));
  CHECK(message(11) == expected("Q3_K"));
  CHECK(message(15) == expected("Q8_K"));
  CHECK(message(20) == expected("IQ4_NL"));
  CHECK(message(23) == expected("IQ4_XS"));
  CHECK(message(26) == expected("I32"));
  CHECK(message(28) == expected("F64"));
  CHECK(message(29) == expected("IQ1_M"));
  CHECK(message(35) == expected("TQ2_0"));
  CHECK(message(39) == expected("MXFP4"));
  CHECK(message(4) == expected("number 4"));
  CHECK(message(1000) == expected("number 1000"));
}

TEST_CASE("gguf: extents that cannot be are errors") {
  const auto message = [](const std::vector<std::uint64_t>& extents, std::uint32_t type) {
    GgufWriter writer;
    writer.add_tensor_at("a", extents, type, 0);
    return parse_message(writer);
  };
  const std::uint64_t large = std::uint64_t{1} << 32;
  CHECK(message({1, 1, 1, 1, 1}, f32) == "x: tensor a has 5 extents; at most 4 are supported");
  CHECK(message({~std::uint64_t{0}}, f32) == "x: tensor a has the extent 18446744073709551615");
  CHECK(message({large, large}, f32) == "x: tensor a: the product of the extents (4294967296, 4294967296) overflows");
  CHECK(message({std::uint64_t{1} << 62}, f32) ==
        "x: tensor a: the product of the extents (4611686018427387904) overflows");
  CHECK(message({large, large, 0}, f32) ==
        "x: tensor a: the product of the extents (0, 4294967296, 4294967296) overflows");
  CHECK(message({0, large, large}, f32) ==
        "x: tensor a: the product of the extents (4294967296, 4294967296, 0) overflows");
  CHECK(message({large, large / 2}, q4_0) ==
        "x: tensor a: the product of the extents (2147483648, 4294967296) overflows");
  CHECK(message({33, 32}, q8_0) == "x: tensor a has rows of 33 values, but Q8_0 holds them in blocks of 32");
  CHECK(message({16, 2}, q4_0) == "x: tensor a has rows of 16 values, but Q4_0 holds them in blocks of 32");
  CHECK(message({48}, q5_0) == "x: tensor a has rows of 48 values, but Q5_0 holds them in blocks of 32");
  CHECK(message({896, 3}, q4_k) == "x: tensor a has rows of 896 values, but Q4_K holds them in blocks of 256");
  CHECK(message({}, q4_1) == "x: tensor a has rows of 1 values, but Q4_1 holds them in blocks of 32");
}

TEST_CASE("gguf: tensors that overlap or lie outside the data are errors") {
  CHECK(second_at(0) == "x: tensors a and b overlap");
  CHECK(second_at(32) == "x: tensors b and pad overlap");
  CHECK(second_at(32, 16) != "no FormatError");
  CHECK(second_at(32, 0) == "no FormatError");
  CHECK(second_at(64) ==
        "x: tensor b takes 16 bytes from byte 64 of the data on, but there are only 64; the file is cut short");
  CHECK(second_at(~std::uint64_t{31}) ==
        "x: tensor b takes 16 bytes from byte 18446744073709551584 of the data on, but there are only 64; the file is "
        "cut short");
}

TEST_CASE("gguf: metadata without tensors need no data") {
  GgufWriter writer;
  writer.add("general.architecture", "qwen2");
  const std::string file = writer.bytes();
  CHECK(Gguf::parse(bytes(file), "x").at<std::string>("general.architecture") == "qwen2");
}

TEST_CASE("gguf: a number of tensors that only the file says makes no room for them") {
  // A file in address space without memory, in which so many tensors would fit that there is no address space for them.
  constexpr std::size_t size = std::size_t{20} << 40;
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return test::skipped("gguf: a file of 20 TiB, for which there is no address space");
  const std::uint32_t version = 3;
  const std::uint64_t tensors = size / 25, pairs = 0, length = size;
  auto* at = static_cast<std::byte*>(memory);
  const auto put = [&](const auto& value) {
    std::memcpy(at, &value, sizeof value);
    at += sizeof value;
  };
  put(std::array<char, 4>{'G', 'G', 'U', 'F'});
  put(version);
  put(tensors);
  put(pairs);
  put(length);
  const auto parse = [&] { Gguf::parse({static_cast<const std::byte*>(memory), size}, "x"); };
  CHECK(format_error(parse) ==
        concat("x: byte 32: the name of a tensor takes ", size, " bytes, but only ", size - 32, " are left"));
  munmap(memory, size);
}

TEST_CASE("gguf: a value of each type is told by its name where another is wanted") {
  GgufWriter writer;
  writer.add("u8", std::uint8_t{1});
  writer.add("i8", std::int8_t{1});
  writer.add("u16", std::uint16_t{1});
  writer.add("i16", std::int16_t{1});
  writer.add("u32", std::uint32_t{1});
  writer.add("i32", std::int32_t{1});
  writer.add("u64", std::uint64_t{1});
  writer.add("i64", std::int64_t{1});
  writer.add("f32", 1.0f);
  writer.add("f64", 1.0);
  writer.add("bool", true);
  writer.add("string", "1");
  const std::string file = writer.bytes();
  const Gguf gguf = Gguf::parse(bytes(file), "x");
  for (const std::string name :
       {"u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f32", "f64", "bool", "string"}) {
    CAPTURE(name);
    const bool floating = name[0] == 'f';
    const bool whole = name[0] == 'u' || name[0] == 'i';
    CHECK(gguf.has(name));
    CHECK(format_error([&] { gguf.get<std::string>(name); }) ==
          (name == "string" ? "no FormatError" : "x: " + name + " must be a string, found " + name));
    CHECK(format_error([&] { gguf.get<bool>(name); }) ==
          (name == "bool" ? "no FormatError" : "x: " + name + " must be a bool, found " + name));
    CHECK(format_error([&] { gguf.get<int>(name); }) ==
          (whole ? "no FormatError" : "x: " + name + " must be an integer, found " + name));
    CHECK(format_error([&] { gguf.get<double>(name); }) ==
          (whole || floating ? "no FormatError" : "x: " + name + " must be a number, found " + name));
    if (whole || floating) CHECK(gguf.at<float>(name) == 1.0f);
    CHECK(format_error([&] { gguf.get<std::vector<int>>(name); }) ==
          "x: " + name + " must be an array, found one " + name);
  }
  CHECK(gguf.name() == "x");
  CHECK_FALSE(gguf.has("u"));
  CHECK(name_of(io::GgufType::array) == "array");
}

TEST_CASE("gguf: integers are in range up to the last that is") {
  GgufWriter writer;
  writer.add("most", std::uint32_t{255});
  writer.add("least", std::int32_t{-128});
  writer.add("beyond", std::int32_t{-129});
  writer.add("large", std::uint64_t{1} << 63);
  writer.add("mixed", std::vector<std::int64_t>{1, 2, 300});
  const std::string file = writer.bytes();
  const Gguf gguf = Gguf::parse(bytes(file), "x");
  CHECK(gguf.at<std::uint8_t>("most") == 255);
  CHECK(gguf.at<std::int8_t>("least") == -128);
  CHECK(format_error([&] { gguf.get<std::int8_t>("most"); }) == "x: most is 255, which is out of range");
  CHECK(format_error([&] { gguf.get<std::int8_t>("beyond"); }) == "x: beyond is -129, which is out of range");
  CHECK(format_error([&] { gguf.get<std::int64_t>("large"); }) ==
        "x: large is 9223372036854775808, which is out of range");
  CHECK(gguf.at<double>("large") == 0x1p63);
  CHECK(gguf.at<std::vector<Index>>("mixed") == std::vector<Index>{1, 2, 300});
  CHECK(format_error([&] { gguf.get<std::vector<std::uint8_t>>("mixed"); }) ==
        "x: mixed is 300, which is out of range");
  CHECK(format_error([&] { gguf.at<std::vector<std::string>>("mixed"); }) == "x: mixed must be a string, found i64");
}

TEST_CASE("gguf: an error of the layout names the byte at which it was read") {
  GgufWriter writer;
  writer.add("key", std::uint32_t{1});
  std::string file = writer.bytes();
  const std::size_t type_at = 4 + 4 + 8 + 8 + 8 + 3;
  file[type_at] = 77;
  CHECK(parse_message(file) == concat("x: byte ", type_at + 4, ": key has the unknown type 77"));
  file.resize(type_at + 4);
  file[type_at] = 4;
  CHECK(parse_message(file) == concat("x: byte ", type_at + 4, ": key takes 4 bytes, but only 0 are left"));
  GgufWriter counts;
  counts.pair_count = 1;
  CHECK(parse_message(counts.bytes().substr(0, 24)) ==
        "x: byte 24: the metadata is said to have 1 items, but only 0 bytes are left");
  CHECK(parse_message("GGUF\3") == "x: byte 4: the version takes 4 bytes, but only 1 are left");
}

TEST_CASE("gguf: as many pairs and tensors may be told of as there is room for") {
  const auto with = [](std::uint64_t tensors, std::uint64_t pairs, std::size_t rest) {
    std::string file = "GGUF";
    GgufWriter::put(file, std::uint32_t{3});
    GgufWriter::put(file, tensors);
    GgufWriter::put(file, pairs);
    return parse_message(file + std::string(rest, '\0'));
  };
  // The empty name of a key and the value 0 of the type u8 are the least that a pair takes.
  CHECK(with(0, 1, 13) == "no FormatError");
  CHECK(with(0, 1, 12) == "x: byte 24: the metadata is said to have 1 items, but only 12 bytes are left");
  CHECK(with(0, 2, 26) == "x: the key  appears twice");
  CHECK(with(0, 2, 25) == "x: byte 24: the metadata is said to have 2 items, but only 25 bytes are left");
  // A tensor without extents, of one F32.
  CHECK(with(1, 0, 24) ==
        "x: tensor  takes 4 bytes from byte 0 of the data on, but there are only 0; the file is cut short");
  CHECK(with(1, 0, 24 + 16 + 4) == "no FormatError");
  CHECK(with(1, 0, 15) == "x: byte 16: the table of tensors is said to have 1 items, but only 23 bytes are left");
}

TEST_CASE("gguf: arrays may have as many items as there are bytes for them") {
  for (const std::uint32_t type : {0u, 3u, 6u, 8u, 12u}) {
    CAPTURE(type);
    const std::size_t least = type == 0 ? 1 : type == 3 ? 2 : type == 6 ? 4 : 8;
    const auto message = [&](std::uint64_t count, std::size_t rest) {
      std::string file = "GGUF";
      GgufWriter::put(file, std::uint32_t{3});
      GgufWriter::put(file, std::uint64_t{0});
      GgufWriter::put(file, std::uint64_t{1});
      GgufWriter::put(file, std::string("key"));
      GgufWriter::put(file, std::uint32_t{9});
      GgufWriter::put(file, type);
      GgufWriter::put(file, count);
      return parse_message(file + std::string(rest, '\0'));
    };
    CHECK(message(3, 3 * least) == "no FormatError");
    CHECK(without_place(message(3, 3 * least - 1)) ==
          concat("key is said to have 3 items, but only ", 3 * least - 1, " bytes are left"));
  }
}

TEST_CASE("gguf: every type that is not supported has its name") {
  const std::vector<std::pair<std::uint32_t, std::string>> types = {
      {9, "Q8_1"},        {10, "Q2_K"},       {11, "Q3_K"},     {15, "Q8_K"},    {16, "IQ2_XXS"},  {17, "IQ2_XS"},
      {18, "IQ3_XXS"},    {19, "IQ1_S"},      {20, "IQ4_NL"},   {21, "IQ3_S"},   {22, "IQ2_S"},    {23, "IQ4_XS"},
      {24, "I8"},         {25, "I16"},        {26, "I32"},      {27, "I64"},     {28, "F64"},      {29, "IQ1_M"},
      {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},   {33, "Q4_0_8_8"}, {34, "TQ1_0"},   {35, "TQ2_0"},    {36, "IQ4_NL_4_4"},
      {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}, {39, "MXFP4"},    {5, "number 5"}, {40, "number 40"}};
  for (const auto& entry : types) {
    GgufWriter writer;
    writer.add_tensor("a", {256}, entry.first, std::string(1024, 'x'));
    CHECK(parse_message(writer).starts_with("x: tensor a has the type " + entry.second + ", which is not supported; "));
  }
}

TEST_CASE("gguf: data of one byte's alignment, and names that many tensors have in common") {
  GgufWriter writer(3, 1);
  writer.add("general.alignment", std::uint32_t{1});
  writer.add_tensor("b", {1}, f32, "bbbb");
  writer.add_tensor("a", {1, 1, 2, 1}, half, "aaaa");
  writer.add_tensor("ab", {3}, half, "cccccc");
  const std::string file = writer.bytes();
  const Gguf gguf = Gguf::parse(bytes(file), "x");
  REQUIRE(gguf.tensors().size() == 3);
  CHECK(gguf.tensors()[0].name == "b");
  CHECK(gguf.tensors()[1].name == "a");
  CHECK(gguf.tensors()[1].shape == Shape{1, 2, 1, 1});
  CHECK(text_of(*gguf.find("a")) == "aaaa");
  CHECK(text_of(*gguf.find("ab")) == "cccccc");
  CHECK(gguf.find("") == nullptr);
  CHECK(gguf.find("a")->file == nullptr);
}

}  // namespace gguf_test
