#include "lora/io/formats/safetensors.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "support/refused_operation.hpp"
#include "support/temp_folder.hpp"

namespace safetensors_test {

using namespace lora;
using namespace lora::io;
using lora::test::TempFolder;

namespace {

/// A file with this header, padded as writers do, and `data_bytes` bytes 0, 1, 2, …
std::string file_of(std::string header, std::size_t data_bytes) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t size = header.size();
  std::string file(sizeof size, '\0');
  std::memcpy(file.data(), &size, sizeof size);
  file += header;
  for (std::size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i);
  return file;
}

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }

/// The message of the error that `call` throws.
template <class E, class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "no such error";
}

std::string parse_message(const std::string& file) {
  return error_of<FormatError>([&] { Safetensors::parse(bytes(file), "x"); });
}

/// The message for one tensor "t" with this description in a file with 16 bytes of data.
std::string entry_message(const std::string& entry) { return parse_message(file_of("{\"t\":" + entry + "}", 16)); }

std::string text_of(const StoredTensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()};
}

const std::vector<TensorDeclaration> declarations = {{"f", DType::f32, Shape{1, 2}},
                                                     {"empty", DType::f32, Shape{0, 3}},
                                                     {"b", DType::bf16, Shape{3}},
                                                     {"scalar", DType::i64, Shape{}}};
const std::string f_data = "abcdefgh", b_data = "ijklmn", scalar_data = "12345678";

void write_all(SafetensorsWriter& writer) {
  writer.add("f", bytes(f_data).first(3));
  writer.add("f", bytes(f_data).subspan(3));
  writer.add("empty", {});
  writer.add("b", bytes(b_data));
  writer.add("scalar", bytes(scalar_data));
}

}  // namespace

TEST_CASE("safetensors: what is written is read back") {
  const TempFolder folder;
  SafetensorsWriter writer(folder / "a.safetensors", declarations, {{"format", "pt"}, {"step", "7"}});
  write_all(writer);
  CHECK(writer.complete());
  CHECK_FALSE(std::filesystem::exists(folder / "a.safetensors"));
  writer.commit();

  const Safetensors file = Safetensors::open(folder / "a.safetensors");
  REQUIRE(file.tensors().size() == 4);
  CHECK(text_of(*file.find("f")) == f_data);
  CHECK(text_of(*file.find("b")) == b_data);
  CHECK(text_of(*file.find("scalar")) == scalar_data);
  CHECK(file.find("empty")->bytes.empty());
  CHECK(file.find("absent") == nullptr);
  for (const TensorDeclaration& declared : declarations) {
    const StoredTensor* tensor = file.find(declared.name);
    CHECK(tensor->name == declared.name);
    CHECK(tensor->dtype == declared.dtype);
    CHECK(tensor->shape == declared.shape);
    CHECK(tensor->file->path() == folder / "a.safetensors");
  }
  CHECK(read_file(folder / "a.safetensors").find(R"({"__metadata__":{"format":"pt","step":"7"},)") == 8);
}

TEST_CASE("safetensors: the written bytes are those of the format") {
  const TempFolder folder;
  SafetensorsWriter writer(folder / "a", {{"w", DType::f32, Shape{1, 2}}});
  writer.add("w", bytes(f_data));
  {
    const test::RefusedOperation synced(FileOperation::Kind::sync_folder, 0);
    writer.commit();
    CHECK(synced.paths == std::vector<Path>{folder.path()});
  }
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  const std::string text = read_file(folder / "a");
  REQUIRE(text.size() == 8 + padded.size() + 8);
  CHECK(text.substr(0, 8) == std::string(1, static_cast<char>(padded.size())) + std::string(7, '\0'));
  CHECK(text.substr(8) == padded + f_data);
}

TEST_CASE("safetensors: the data are in place in the mapped file, tensors in their order") {
  const std::string file = file_of(
      R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]},"a":{"dtype":"I8","shape":[3],"data_offsets":[0,3]}})",
      5);
  const Safetensors parsed = Safetensors::parse(bytes(file), "x");
  REQUIRE(parsed.tensors().size() == 2);
  CHECK(parsed.tensors()[0].name == "a");
  CHECK(parsed.tensors()[1].name == "b");
  CHECK(parsed.find("b")->bytes.data() == bytes(file).data() + file.size() - 2);
  CHECK(parsed.find("b")->file == nullptr);
}

TEST_CASE("safetensors: a copy finds its tensors") {
  const std::string file = file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2);
  const auto copy = [&] {
    const Safetensors original = Safetensors::parse(bytes(file), "x");
    return Safetensors(original);
  }();
  CHECK(copy.find("a") == &copy.tensors()[0]);
}

TEST_CASE("safetensors: every type of the format that is supported") {
  for (const char* name : {"F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8"}) {
    const std::string size = std::string(name) == "BF16" ? "16" : std::string(name).substr(1);
    const int bytes_each = std::stoi(size) / 8;
    const std::string entry = std::string("{\"t\":{\"dtype\":\"") + name + "\",\"shape\":[2],\"data_offsets\":[0," +
                              std::to_string(2 * bytes_each) + "]}}";
    const std::string file = file_of(entry, static_cast<std::size_t>(2 * bytes_each));
    const Safetensors parsed = Safetensors::parse(bytes(file), "x");
    CHECK(name_of(parsed.find("t")->dtype) == name);
  }
}

TEST_CASE("safetensors: a file without tensors is read") {
  CHECK(Safetensors::parse(bytes(file_of("{}", 0)), "x").tensors().empty());
  CHECK(Safetensors::parse(bytes(file_of(R"({"__metadata__":{"a":"b"}})", 0)), "x").tensors().empty());
}

TEST_CASE("safetensors: a truncated or oversized header is an error") {
  const std::string good = file_of(R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4);
  REQUIRE(parse_message(good) == "no such error");
  for (std::size_t size = 0; size < good.size(); ++size) {
    CAPTURE(size);
    CHECK(parse_message(good.substr(0, size)) != "no such error");
  }
  CHECK(parse_message("") == "x: 0 bytes are too few for a safetensors file");
  CHECK(parse_message(good.substr(0, 30)) ==
        "x: the header is said to take 56 bytes but only 22 follow; the file is cut short");
  std::string huge = good;
  std::memset(huge.data(), 0xff, 8);
  CHECK(parse_message(huge) ==
        "x: the header is said to take 18446744073709551615 bytes, more than the 100000000 allowed");
}

TEST_CASE("safetensors: a header that is no JSON object is an error") {
  CHECK(parse_message(file_of("{\"t\": }", 0)).find("x (header):1:7: syntax error") == 0);
  CHECK(parse_message(file_of("[]", 0)) == "x: the header must be a JSON object");
  CHECK(parse_message(file_of(R"({"__metadata__":[]})", 0)) == "x: \"__metadata__\" must be an object");
  CHECK(parse_message(file_of(R"({"__metadata__":{"a":1}})", 0)) == "x: __metadata__: \"a\" must be a string, found 1");
  CHECK(parse_message(file_of("{\"\xff\":1}", 0)).find("ill-formed UTF-8") != std::string::npos);
}

TEST_CASE("safetensors: a tensor that is described wrongly is an error") {
  CHECK(entry_message(R"({"dtype":"F32","shape":[2,2],"data_offsets":[0,16]})") == "no such error");
  CHECK(entry_message("3") == "x: tensor t must be described by an object");
  CHECK(entry_message(R"({"shape":[4],"data_offsets":[0,16]})") == "x: tensor t: \"dtype\" is missing");
  CHECK(entry_message(R"({"dtype":"F32","data_offsets":[0,16]})") == "x: tensor t: \"shape\" is missing");
  CHECK(entry_message(R"({"dtype":"F32","shape":[4]})") == "x: tensor t: \"data_offsets\" is missing");
  CHECK(entry_message(R"({"dtype":"F32","shape":[4],"data_offsets":[0,16],"more":1})") ==
        "x: tensor t: unknown field \"more\"");
  CHECK(entry_message(R"({"dtype":"F8_E4M3","shape":[16],"data_offsets":[0,16]})") ==
        "x: tensor t: dtype \"F8_E4M3\" is not supported");
  CHECK(entry_message(R"({"dtype":"Q8_0","shape":[16],"data_offsets":[0,16]})") ==
        "x: tensor t: dtype \"Q8_0\" is not supported");
  CHECK(entry_message(R"({"dtype":"F32","shape":[-4],"data_offsets":[0,16]})") == "x: tensor t: negative extent -4");
  CHECK(entry_message(R"({"dtype":"F32","shape":[2.5],"data_offsets":[0,16]})") ==
        "x: tensor t: \"shape[0]\" must be an integer in range, found 2.5");
  CHECK(entry_message(R"({"dtype":"F32","shape":[1,1,1,2,2],"data_offsets":[0,16]})") ==
        "x: tensor t: 5 extents; at most 4 are supported");
  CHECK(entry_message(R"({"dtype":"F32","shape":[4],"data_offsets":[0]})") ==
        "x: tensor t: \"data_offsets\" must be a begin and an end");
  CHECK(entry_message(R"({"dtype":"F32","shape":[4],"data_offsets":[16,0]})") ==
        "x: tensor t: \"data_offsets\" must be a begin and an end");
  CHECK(entry_message(R"({"dtype":"F32","shape":[4],"data_offsets":[0,-1]})") ==
        "x: tensor t: \"data_offsets[1]\" must be an integer in range, found -1");
  CHECK(entry_message(R"({"dtype":"F32","shape":[3],"data_offsets":[0,16]})") ==
        "x: tensor t: F32 (3) takes 12 bytes, but the data_offsets hold 16");
  CHECK(entry_message(R"({"dtype":"F32","shape":[5],"data_offsets":[0,20]})") ==
        "x: tensor t ends at byte 20 of the data, but there are only 16; the file is cut short");
}

TEST_CASE("safetensors: extents whose product overflows are an error") {
  // 2^62 elements of 4 bytes wrap to 0 bytes; so do 2^32 · 2^32 of 1
  CHECK(entry_message(R"({"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]})") ==
        "x: tensor t: the product of the extents (4611686018427387904) overflows");
  CHECK(entry_message(R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]})") ==
        "x: tensor t: the product of the extents (4294967296, 4294967296) overflows");
  CHECK(entry_message(R"({"dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0]})") ==
        "x: tensor t: the product of the extents (0, 4294967296, 4294967296) overflows");
}

TEST_CASE("safetensors: overlap, holes and rests are errors") {
  const auto pair_message = [](int begin, int end, std::size_t data_bytes) {
    return parse_message(file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[)" +
                                     std::to_string(end - begin) + R"(],"data_offsets":[)" + std::to_string(begin) +
                                     "," + std::to_string(end) + "]}}",
                                 data_bytes));
  };
  CHECK(pair_message(4, 8, 8) == "no such error");
  CHECK(pair_message(4, 4, 4) == "no such error");
  CHECK(pair_message(3, 7, 7) == "x: tensors a and b overlap at byte 3 of the data");
  CHECK(pair_message(0, 4, 4) == "x: tensors a and b overlap at byte 0 of the data");
  CHECK(pair_message(2, 2, 4) != "no such error");
  CHECK(pair_message(5, 8, 8) == "x: bytes 4 to 5 of the data, before b, belong to no tensor");
  CHECK(pair_message(4, 8, 9) == "x: 1 bytes at the end belong to no tensor");
}

TEST_CASE("safetensors: a name that appears twice is an error") {
  CHECK(parse_message(file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                              R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                              2)) == "x (header): the key \"a\" appears twice in one object");
}

TEST_CASE("safetensors: a writer refuses what does not follow its declarations, and leaves nothing") {
  const TempFolder folder;
  const std::string where = (folder / "a").native() + ": tensor ";
  {
    SafetensorsWriter writer(folder / "a", declarations);
    CHECK(error_of<FormatError>([&] { writer.add("b", bytes(b_data)); }) ==
          where + "b: data given out of order; the next tensor is f");
    CHECK(error_of<FormatError>([&] { writer.add("f", bytes(f_data + "9")); }) ==
          where + "f: 9 bytes given where 8 are left");
    writer.add("f", bytes(f_data));
    CHECK(error_of<FormatError>([&] { writer.commit(); }) == where + "b: its data are not complete");
    writer.add("b", bytes(b_data));
    writer.add("scalar", bytes(scalar_data));
    CHECK(error_of<FormatError>([&] { writer.add("scalar", bytes(scalar_data)); }) ==
          where + "scalar: data given out of order; the next tensor is none");
  }
  const auto declare = [&](std::vector<TensorDeclaration> tensors) {
    return error_of<FormatError>([&] { SafetensorsWriter(folder / "a", std::move(tensors)); });
  };
  CHECK(declare({{"q", DType::q8_0, Shape{32}}}) == where + "q: safetensors cannot hold Q8_0");
  CHECK(declare({{"q", DType::u8, Shape{1}}, {"r", DType::u8, Shape{1}}, {"q", DType::u8, Shape{1}}}) ==
        where + "q: this name is declared twice");
  CHECK(declare({{"__metadata__", DType::u8, Shape{1}}}) == where + "__metadata__: this name is declared twice");
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("safetensors: five names are listed, of more their number") {
  CHECK(listed({}).empty());
  CHECK(listed({"a"}) == "a");
  CHECK(listed({"a", "b", "c", "d", "e"}) == "a, b, c, d, e");
  CHECK(listed({"a", "b", "c", "d", "e", "f"}) == "a, b, c, d, e and 1 more");
  CHECK(listed({"a", "b", "c", "d", "e", "f", "g"}) == "a, b, c, d, e and 2 more");
}

TEST_CASE("safetensors: a header of a hundred million bytes is cut short, one of a byte more not allowed") {
  const auto message = [](std::uint64_t header) {
    std::string file(8, '\0');
    std::memcpy(file.data(), &header, sizeof header);
    return parse_message(file + "{}");
  };
  CHECK(message(100'000'000) ==
        "x: the header is said to take 100000000 bytes but only 2 follow; the file is cut short");
  CHECK(message(100'000'001) == "x: the header is said to take 100000001 bytes, more than the 100000000 allowed");
  CHECK(message(2) == "no such error");
  CHECK(message(3) == "x: the header is said to take 3 bytes but only 2 follow; the file is cut short");
  CHECK(parse_message(std::string(7, '\0')) == "x: 7 bytes are too few for a safetensors file");
}

TEST_CASE("safetensors: an entry without bytes may stand at either end of the data, but not within a tensor") {
  const auto message = [](int place) {
    const std::string at = std::to_string(place);
    return parse_message(file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"F32",)"
                                 R"("shape":[0],"data_offsets":[)" +
                                     at + "," + at + "]}}",
                                 4));
  };
  CHECK(message(0) == "no such error");
  CHECK(message(4) == "no such error");
  CHECK(message(2) == "x: tensors a and b overlap at byte 2 of the data");
  CHECK(message(5) == "x: tensor b ends at byte 5 of the data, but there are only 4; the file is cut short");
  CHECK(entry_message(R"({"dtype":"U8","shape":[8],"data_offsets":[0,8]})") ==
        "x: 8 bytes at the end belong to no tensor");
  CHECK(entry_message(R"({"dtype":"U8","shape":[8],"data_offsets":[8,16]})") ==
        "x: bytes 0 to 8 of the data, before t, belong to no tensor");
  CHECK(entry_message(R"({"dtype":"U8","shape":[15],"data_offsets":[1,17]})") ==
        "x: tensor t ends at byte 17 of the data, but there are only 16; the file is cut short");
  CHECK(entry_message(R"({"dtype":"U8","shape":[16],"data_offsets":[0,8,16]})") ==
        "x: tensor t: \"data_offsets\" must be a begin and an end");
  CHECK(entry_message(R"({"dtype":"I16","shape":[2,2,1,2],"data_offsets":[0,16]})") == "no such error");
  CHECK(entry_message(R"({"dtype":"F64","shape":[2,2],"data_offsets":[0,16]})") ==
        "x: tensor t: F64 (2, 2) takes 32 bytes, but the data_offsets hold 16");
}

TEST_CASE("safetensors: metadata are as they are given, or none") {
  const TempFolder folder;
  const auto header = [&](const SafetensorsMetadata& metadata) {
    SafetensorsWriter writer(folder / "a", {{"e", DType::u8, Shape{0}}}, metadata);
    CHECK(writer.complete());
    writer.commit();
    return read_file(folder / "a").substr(8);
  };
  const std::string rest = R"("e":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})";
  CHECK(header({}).starts_with("{" + rest));
  CHECK(header({{"b", "1"}, {"a", "2"}}).starts_with(R"({"__metadata__":{"b":"1","a":"2"},)" + rest));
  CHECK(read_file(folder / "a").size() % 8 == 0);
}

TEST_CASE("safetensors: a folder's one file is read before its index, and what is no index by its content") {
  const TempFolder folder;
  const std::string one = file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
  const std::string two = file_of(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
  write_file(folder / "model.safetensors", one);
  write_file(folder / "other.safetensors", two);
  write_file(folder / "model.safetensors.index.json", R"({"weight_map": {"b": "other.safetensors"}})");
  CHECK(Safetensors::open(folder.path()).find("a"));
  CHECK(Safetensors::open(folder / "model.safetensors.index.json").find("b"));
  write_file(folder / "named.index.json", R"({"weight_map": {"a": "model.safetensors"}})");
  CHECK(Safetensors::open(folder / "named.index.json").find("a"));
  write_file(folder / "index.json", one);
  CHECK(Safetensors::open(folder / "index.json").find("a"));
  std::filesystem::create_symlink("nowhere", folder / "link");
  remove_file(folder / "model.safetensors");
  std::filesystem::create_symlink("nowhere", folder / "model.safetensors");
  CHECK(error_of<IoError>([&] { Safetensors::open(folder.path()); }) ==
        "cannot open " + (folder / "model.safetensors").native() + ": it is a link to a file that does not exist");
}

TEST_CASE("safetensors: a writer that has its data settles them under a temporary name") {
  const TempFolder folder;
  SafetensorsWriter writer(folder / "a", {{"w", DType::f32, Shape{2}}, {"e", DType::f32, Shape{0}}});
  CHECK_FALSE(writer.complete());
  CHECK(error_of<FormatError>([&] { writer.settle(); }) ==
        (folder / "a").native() + ": tensor w: its data are not complete");
  writer.add("other", {});
  writer.add("w", bytes(f_data).first(4));
  CHECK(error_of<FormatError>([&] { writer.add("w", bytes(f_data).first(5)); }) ==
        (folder / "a").native() + ": tensor w: 5 bytes given where 4 are left");
  CHECK_FALSE(writer.complete());
  writer.add("w", bytes(f_data).subspan(4));
  CHECK(writer.complete());
  writer.settle();
  CHECK_FALSE(is_there(folder / "a"));
  writer.publish();
  CHECK(text_of(*Safetensors::open(folder / "a").find("w")) == f_data);
}

}  // namespace safetensors_test
