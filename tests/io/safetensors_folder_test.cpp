#include "lora/io/formats/safetensors_folder.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lora/io/files/paths.hpp"
#include "support/file_faults.hpp"
#include "support/refused_operation.hpp"
#include "support/temp_folder.hpp"

namespace safetensors_folder_test {

using namespace lora;
using namespace lora::io;
using lora::test::Fault;
using lora::test::TempFolder;

namespace {

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }

template <class E, class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "no such error";
}

std::string text_of(const StoredTensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()};
}

const std::vector<TensorDeclaration> declarations = {{"f", DType::f32, Shape{1, 2}},
                                                     {"empty", DType::f32, Shape{0, 3}},
                                                     {"b", DType::bf16, Shape{3}},
                                                     {"scalar", DType::i64, Shape{}}};
const std::string f_data = "abcdefgh", b_data = "ijklmn";

}  // namespace

TEST_CASE("safetensors_folder: a folder with one file") {
  const TempFolder folder;
  SafetensorsFolderWriter writer(folder.path(), declarations, 1 << 20);
  writer.add("f", bytes(f_data));
  writer.add("b", bytes(b_data));
  writer.add("scalar", bytes(f_data));
  {
    const test::RefusedOperation synced(FileOperation::Kind::sync_folder, 0);
    writer.commit();
    CHECK(synced.paths == std::vector<Path>{folder.path()});
  }
  CHECK(std::filesystem::exists(folder / "model.safetensors"));
  CHECK_FALSE(std::filesystem::exists(folder / "model.safetensors.index.json"));
  CHECK(read_file(folder / "model.safetensors").substr(8).starts_with(R"({"__metadata__":{"format":"pt"},"f":)"));
  CHECK(Safetensors::open(folder.path()).tensors().size() == 4);
}

namespace {

void write_shards(const std::filesystem::path& folder, const std::string& eight = f_data) {
  SafetensorsFolderWriter writer(folder, declarations, 8);
  writer.add("f", bytes(eight));
  writer.add("b", bytes(b_data));
  writer.add("scalar", bytes(eight));
  writer.commit();
}

}  // namespace

namespace {

/// Data of a tensor, of which no other may be alive.
class Lone {
 public:
  Lone(std::size_t size, char fill) : data_(size, fill) { CHECK(++alive == 1); }
  Lone(const Lone&) = delete;
  Lone& operator=(const Lone&) = delete;
  ~Lone() { --alive; }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(data_)); }

 private:
  static inline int alive = 0;
  std::vector<char> data_;
};

std::uintmax_t bytes_in(const std::filesystem::path& folder) {
  std::uintmax_t total = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) total += entry.file_size();
  return total;
}

}  // namespace

TEST_CASE("safetensors_folder: each tensor is in a file before the next one is given, under no final name") {
  constexpr std::size_t size = 100'000;
  std::vector<TensorDeclaration> tensors;
  for (int i = 0; i < 8; ++i) tensors.push_back({"t" + std::to_string(i), DType::u8, Shape{static_cast<Index>(size)}});
  for (const Index shard : {Index{1} << 40, Index{250'000}})
    for (const bool finishes : {true, false}) {
      CAPTURE(shard);
      CAPTURE(finishes);
      const TempFolder folder;
      {
        SafetensorsFolderWriter writer(folder.path(), tensors, shard);
        std::uintmax_t given = 0;
        for (std::size_t i = 0; i < (finishes ? 8u : 5u); ++i) {
          const Lone tensor(size, static_cast<char>('a' + i));
          writer.add(tensors[i].name, tensor.bytes());
          given += size;
          CHECK(bytes_in(folder.path()) >= given);
          CHECK_FALSE(std::filesystem::exists(folder / "model.safetensors"));
          CHECK_FALSE(std::filesystem::exists(folder / "model-00001-of-00004.safetensors"));
        }
        if (finishes) writer.commit();
      }
      if (!finishes) {
        CHECK(std::filesystem::is_empty(folder.path()));
        continue;
      }
      const auto file = Safetensors::open(folder.path());
      for (std::size_t i = 0; i < 8; ++i)
        CHECK((text_of(*file.find(tensors[i].name)) == std::string(size, static_cast<char>('a' + i))));
    }
}

TEST_CASE("safetensors_folder: shards are numbered with five digits") {
  const TempFolder folder;
  std::vector<TensorDeclaration> many;
  for (int i = 0; i < 12; ++i) many.push_back({"t" + std::to_string(i), DType::f32, Shape{1, 2}});
  SafetensorsFolderWriter writer(folder.path(), many, 8);
  for (const auto& tensor : many) writer.add(tensor.name, bytes(f_data));
  writer.commit();
  for (const char* number : {"00001", "00009", "00010", "00012"})
    CHECK(std::filesystem::exists(folder / ("model-" + std::string(number) + "-of-00012.safetensors")));
  CHECK(Safetensors::open(folder.path()).tensors().size() == 12);
}

TEST_CASE("safetensors_folder: shards and their index go round, and replace an older single file") {
  const TempFolder folder;
  write_file(folder / "model.safetensors", "old");
  write_shards(folder.path());
  CHECK_FALSE(std::filesystem::exists(folder / "model.safetensors"));
  const Json index = read_json(folder / "model.safetensors.index.json");
  CHECK(to_text(index, -1) == R"({"metadata":{"total_size":22},"weight_map":{"f":"model-00001-of-00003.safetensors",)"
                              R"("empty":"model-00001-of-00003.safetensors","b":"model-00002-of-00003.safetensors",)"
                              R"("scalar":"model-00003-of-00003.safetensors"}})");
  for (const auto& path : {folder.path(), folder / "model.safetensors.index.json"}) {
    const Safetensors file = Safetensors::open(path);
    CHECK(file.tensors().size() == 4);
    CHECK(text_of(*file.find("f")) == f_data);
    CHECK(text_of(*file.find("b")) == b_data);
    CHECK(text_of(*file.find("scalar")) == f_data);
    CHECK(file.find("b")->file->path().filename() == "model-00002-of-00003.safetensors");
  }
}

TEST_CASE("safetensors_folder: a shard or tensor that the index lists and is not there is named") {
  const TempFolder folder;
  write_shards(folder.path());
  const auto message = [&] { return error_of<Error>([&] { Safetensors::open(folder.path()); }); };
  const std::string base = folder.path().native();
  const std::string index = base + "/model.safetensors.index.json";
  const std::string good = read_file(index);

  write_file(index,
             R"({"weight_map": {"f": "model-00002-of-00003.safetensors", "g": "model-00002-of-00003.safetensors"}})");
  CHECK(message() == base + "/model-00002-of-00003.safetensors: missing tensors that the index lists: f, g");
  write_file(index,
             R"({"weight_map": {"b": "model-00002-of-00003.safetensors", "f": "model-00001-of-00003.safetensors", )"
             R"("empty": "model-00002-of-00003.safetensors"}})");  // it is in the first
  CHECK(message() == base + "/model-00002-of-00003.safetensors: missing tensors that the index lists: empty");
  write_file(index, R"({"weight_map": {"f": "../model-00001-of-00003.safetensors"}})");
  CHECK(message() ==
        index +
            ": tensor f is said to be in \"../model-00001-of-00003.safetensors\", which is not the name of "
            "a file beside the index");
  for (const char* name : {"", ".", "..", "/etc/passwd", "a/b"}) {
    write_file(index, std::string(R"({"weight_map": {"f": ")") + name + "\"}}");
    CHECK(message().find("which is not the name of a file beside the index") != std::string::npos);
  }
  const std::string long_name(300, 'x');
  write_file(index, R"({"weight_map": {"f": ")" + long_name + "\"}}");
  CHECK(message() == "cannot open " + base + "/" + long_name + ": File name too long");
  write_file(index, "[]");
  CHECK(message() == index + ": expected an object");
  for (const char* text : {"{}", R"({"weight_map": []})"}) {
    write_file(index, text);
    CHECK(message() == index + ": \"weight_map\" must be an object of tensor names");
  }
  write_file(index, R"({"weight_map": {"f": 1}})");
  CHECK(message() == index + ": weight_map: \"f\" must be a string, found 1");
  write_file(index, R"({"weight_map": )");
  CHECK(message().find(index + ":1:16: syntax error") == 0);

  write_file(index, good);
  remove_file(folder / "model-00001-of-00003.safetensors");
  remove_file(folder / "model-00003-of-00003.safetensors");
  CHECK(message() ==
        index +
            ": missing shards: model-00001-of-00003.safetensors, model-00003-of-00003.safetensors; the model was not "
            "downloaded or copied completely");
  remove_file(index);
  const std::string none = "no model.safetensors or model.safetensors.index.json in " + base;
  CHECK(message() ==
        none +
            "; it holds model-00002-of-00003.safetensors: a single file has to be called model.safetensors, and "
            "several need the index that came with them");
  remove_file(folder / "model-00002-of-00003.safetensors");
  CHECK(message() == none);
  for (const char* name : {"training_args.bin", "optimizer.pt", "rng_state.pth", "scheduler.pt"})
    write_file(folder / name, "");
  CHECK(message() == none);
  for (const char* name : {"pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "consolidated.00.pth", "x.gguf"}) {
    write_file(folder / name, "");
    CHECK(message() == concat(none, "; it holds ", name,
                              ": save_pretrained of transformers makes a model.safetensors of weights in PyTorch's "
                              "files, and a .gguf file is given by its own name"));
    remove_file(folder / name);
  }
}

TEST_CASE("safetensors_folder: a tensor that is in two shards is an error") {
  const TempFolder folder;
  write_shards(folder.path());
  std::filesystem::copy_file(folder / "model-00001-of-00003.safetensors", folder / "other.safetensors");
  write_file(folder / "model.safetensors.index.json",
             R"({"weight_map": {"f": "model-00001-of-00003.safetensors", "empty": "other.safetensors"}})");
  CHECK(error_of<FormatError>([&] { Safetensors::open(folder.path()); }) ==
        (folder / "other.safetensors").native() + ": tensor f is also in " +
            (folder / "model-00001-of-00003.safetensors").native());
}

TEST_CASE("safetensors_folder: shards that fail at any operation leave nothing half-written") {
  for (const Fault fault : {Fault::fails, Fault::disk_full}) {
    const TempFolder folder;
    bool returned = false;
    const auto prepare = [&](Index) {
      returned = false;
      for (const auto& entry : std::filesystem::directory_iterator(folder.path())) io::remove_all(entry.path());
    };
    const auto run = [&] {
      write_shards(folder.path());
      returned = true;
    };
    const auto check = [&](Index at, bool reached) {
      CAPTURE(static_cast<int>(fault));
      CAPTURE(at);
      CHECK(returned != reached);
      std::size_t files = 0;
      for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
        CHECK_FALSE(name_of_temporary(entry.path(), Temporary::partial));
        ++files;
      }
      if (std::filesystem::exists(folder / "model.safetensors.index.json")) {
        CHECK(Safetensors::open(folder.path()).tensors().size() == 4);
      } else {
        CHECK(files == 0);
      }
    };
    lora::test::sweep_faults(folder.path(), fault, prepare, run, check);
  }
}

TEST_CASE("safetensors_folder: shards that replace older ones are never mixed with them") {
  for (const Fault fault : {Fault::dies, Fault::dies_mid_write, Fault::loses_unsynced, Fault::loses_data}) {
    const TempFolder folder;
    const auto prepare = [&](Index) {
      for (const auto& entry : std::filesystem::directory_iterator(folder.path())) io::remove_all(entry.path());
      write_shards(folder.path(), "older...");
    };
    const auto run = [&] { write_shards(folder.path(), "newer..."); };
    const auto check = [&](Index at, bool reached) {
      CAPTURE(static_cast<int>(fault));
      CAPTURE(at);
      try {
        const Safetensors file = Safetensors::open(folder.path());
        CHECK(text_of(*file.find("f")) == text_of(*file.find("scalar")));
        CHECK((reached || text_of(*file.find("f")) == "newer..."));
      } catch (const Error& error) {
        CHECK(reached);
        const std::string none = "no model.safetensors or model.safetensors.index.json in " + folder.path().native();
        CHECK(std::string_view(error.what()).starts_with(none));
      }
    };
    lora::test::sweep_faults(folder.path(), fault, prepare, run, check);
  }
}

TEST_CASE("safetensors_folder: shards have at most the bytes that are given, but for a larger tensor") {
  const auto files = [](Index most) {
    const TempFolder folder;
    const std::vector<TensorDeclaration> tensors = {{"a", DType::u8, Shape{4}},
                                                    {"b", DType::u8, Shape{4}},
                                                    {"c", DType::u8, Shape{9}},
                                                    {"d", DType::u8, Shape{1}},
                                                    {"e", DType::u8, Shape{7}}};
    SafetensorsFolderWriter writer(folder.path(), tensors, most, {{"by", "x"}}, "adapter");
    const std::string data = "123456789";
    for (const auto& tensor : tensors)
      writer.add(tensor.name, bytes(data).first(static_cast<std::size_t>(tensor.shape[0])));
    writer.commit();
    CHECK_FALSE(std::filesystem::exists(folder / "model.safetensors"));
    if (most >= 25) {
      CHECK(read_file(folder / "adapter.safetensors").substr(8).starts_with(R"({"__metadata__":{"by":"x"},"a":)"));
      CHECK(entries_of(folder.path()).size() == 1);
      return std::string("one");
    }
    std::string shards;
    const Json index = read_json(folder / "adapter.safetensors.index.json");
    CHECK(index["metadata"]["total_size"].get<int>() == 25);
    for (const auto& [name, file] : json_fields(index["weight_map"]))
      shards += file.get<std::string>().substr(std::string("adapter-0000").size(), 1);
    const std::string second = concat("adapter-00002-of-0000", shards.back(), ".safetensors");
    CHECK(read_file(folder / second).substr(8).starts_with(R"({"__metadata__":{"by":"x"},)"));
    return shards;
  };
  CHECK(files(25) == "one");
  CHECK(files(24) == "11112");
  CHECK(files(17) == "11122");
  CHECK(files(16) == "11223");
  CHECK(files(8) == "11233");
  CHECK(files(7) == "12345");
  CHECK(files(1) == "12345");
}

TEST_CASE("safetensors_folder: a single file replaces an older index, which would be of other weights") {
  const TempFolder folder;
  write_shards(folder.path());
  SafetensorsFolderWriter writer(folder.path(), {{"f", DType::f32, Shape{1, 2}}}, 8);
  writer.add("f", bytes(b_data + "xx"));
  CHECK(std::filesystem::exists(folder / "model.safetensors.index.json"));
  writer.commit();
  CHECK_FALSE(std::filesystem::exists(folder / "model.safetensors.index.json"));
  CHECK(text_of(*Safetensors::open(folder.path()).find("f")) == b_data + "xx");
}

TEST_CASE("safetensors_folder: what is not complete, or in another order, is refused and leaves nothing") {
  const TempFolder folder;
  const auto shard = [&](int i) { return (folder / concat("model-0000", i, "-of-00003.safetensors")).native(); };
  const auto add = [&](SafetensorsFolderWriter& writer, const char* name, const std::string& data) {
    return error_of<FormatError>([&] { writer.add(name, bytes(data)); });
  };
  {
    SafetensorsFolderWriter writer(folder.path(), declarations, 8);
    CHECK(add(writer, "b", b_data) == shard(1) + ": tensor b: data given out of order; the next tensor is f");
    writer.add("f", bytes(f_data));
    CHECK(add(writer, "f", f_data) == shard(2) + ": tensor f: data given out of order; the next tensor is b");
    writer.add("b", bytes(b_data));
    CHECK(error_of<FormatError>([&] { writer.commit(); }) == shard(3) + ": tensor scalar: its data are not complete");
  }
  CHECK(entries_of(folder.path()).empty());
  {
    SafetensorsFolderWriter writer(folder.path(), declarations, 8);
    writer.add("f", bytes(f_data));
    writer.add("b", bytes(b_data));
    writer.add("scalar", bytes(f_data));
    CHECK(add(writer, "more", f_data) == shard(3) + ": tensor more: data given out of order; the next tensor is none");
  }
  CHECK(entries_of(folder.path()).empty());
}

}  // namespace safetensors_folder_test
