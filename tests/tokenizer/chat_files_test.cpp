#include "lora/tokenizer/chat_files.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace chat_files_test {

using namespace lora;
using tokenizer::ChatFiles;
using tokenizer::read_chat_files;
using tokenizer::write_chat_files;

namespace {

/// A folder that holds the files of a tokenizer, without its vocabulary.
struct Folder {
  test::TempFolder temp;

  void put(const char* name, std::string_view text) const { io::write_file(temp / name, text); }
  bool has(const char* name) const { return std::filesystem::exists(temp / name); }
  std::string text(const char* name) const { return io::read_file(temp / name); }
  io::Json json(const char* name) const { return io::read_json(temp / name); }
  ChatFiles read() const { return read_chat_files(temp.path()); }
  void write(const ChatFiles& chat) const { write_chat_files(temp.path(), chat); }
};

}  // namespace

TEST_CASE("chat_files: a folder's template and end are read from where transformers reads them") {
  const Folder folder;
  CHECK(folder.read().chat_template.empty());
  CHECK(folder.read().eos_token.empty());
  folder.put("chat_template.json", R"({"chat_template": "of its own file"})");
  CHECK(folder.read().chat_template == "of its own file");
  folder.put("tokenizer_config.json", R"({"eos_token": {"content": "<e>"}, "chat_template": "of the settings"})");
  CHECK(folder.read().chat_template == "of the settings");
  CHECK(folder.read().eos_token == "<e>");
  folder.put("chat_template.jinja", "of the jinja file");
  CHECK(folder.read().chat_template == "of the jinja file");
  folder.put("tokenizer_config.json", R"({"eos_token": null})");
  CHECK(folder.read().eos_token.empty());
}

TEST_CASE("chat_files: what a folder says already, and what nobody says, leaves its bytes alone") {
  const Folder folder;
  const std::string_view settings = R"({"chat_template":"T" , "eos_token":"<e>","x":1})",
                         map = R"({"eos_token":"<e>" })";
  folder.put("tokenizer_config.json", settings);
  folder.put("special_tokens_map.json", map);
  for (const ChatFiles& chat : {ChatFiles{}, ChatFiles{"T", "<e>"}, ChatFiles{"", "<e>"}, ChatFiles{"T", ""}}) {
    folder.write(chat);
    CHECK(folder.text("tokenizer_config.json") == settings);
    CHECK(folder.text("special_tokens_map.json") == map);
    CHECK_FALSE(folder.has("chat_template.jinja"));
  }
}

TEST_CASE("chat_files: another template stands in every file that has one, and other settings stay") {
  const Folder folder;
  folder.put("tokenizer_config.json",
             R"({"a": 1, "chat_template": [{"name": "default", "template": "old"}], "b": [2]})");
  folder.put("chat_template.json", R"({"chat_template": "older"})");
  folder.write({"new\n", ""});
  CHECK(folder.text("chat_template.jinja") == "new\n");
  CHECK(folder.json("tokenizer_config.json") == io::Json{{"a", 1}, {"chat_template", "new\n"}, {"b", {2}}});
  CHECK_FALSE(folder.has("chat_template.json"));
  CHECK(folder.read().chat_template == "new\n");

  const Folder bare;
  bare.put("tokenizer_config.json", R"({"a": 1})");
  bare.write({"new", ""});
  CHECK(bare.text("tokenizer_config.json") == R"({"a": 1})");
  CHECK(bare.read().chat_template == "new");
}

TEST_CASE("chat_files: another end stands in tokenizer_config.json, and in special_tokens_map.json where it is named") {
  const Folder folder;
  folder.put("tokenizer_config.json", R"({"eos_token": {"content": "<old>", "lstrip": false}, "bos_token": "<b>"})");
  folder.put("special_tokens_map.json", R"({"eos_token": "<old>", "pad_token": "<p>"})");
  folder.write({"", "<new>"});
  CHECK(folder.json("tokenizer_config.json") == io::Json{{"eos_token", "<new>"}, {"bos_token", "<b>"}});
  CHECK(folder.json("special_tokens_map.json") == io::Json{{"eos_token", "<new>"}, {"pad_token", "<p>"}});
  CHECK_FALSE(folder.has("chat_template.jinja"));

  const Folder numbers;
  numbers.put("tokenizer_config.json", R"({"model_max_length": 1000000000000000019884624838656, "eos_token": "<e>"})");
  numbers.write({"", "<new>"});
  CHECK(numbers.text("tokenizer_config.json") ==
        "{\n  \"model_max_length\": 1000000000000000019884624838656,\n  \"eos_token\": \"<new>\"\n}\n");

  const Folder bare;
  bare.put("special_tokens_map.json", R"({"pad_token": "<p>"})");
  bare.write({"", "<new>"});
  CHECK(bare.json("tokenizer_config.json") == io::Json{{"eos_token", "<new>"}});
  CHECK(bare.text("special_tokens_map.json") == R"({"pad_token": "<p>"})");
}

TEST_CASE("chat_files: an object without content, or a file that holds no object, is told") {
  const Folder folder;
  folder.put("tokenizer_config.json", "[]");
  CHECK(test::message_of([&] { folder.read(); }) ==
        (folder.temp / "tokenizer_config.json").native() + ": expected an object");
  folder.put("tokenizer_config.json", R"({"eos_token": {"special": true}})");
  CHECK(test::message_of([&] { folder.read(); }) ==
        (folder.temp / "tokenizer_config.json").native() + ": eos_token: \"content\" is missing");
}

}  // namespace chat_files_test
