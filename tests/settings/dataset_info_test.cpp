#include "lora/settings/dataset_info.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/io/files/file_system.hpp"
#include "lora/settings/settings.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace dataset_info_test {

using namespace lora;
using namespace lora::settings;

namespace {

/// A folder with a dataset_info.json and two of the files that it names.
struct Folder {
  explicit Folder(std::string_view info = R"({
    "identity": {"file_name": "i.json"},
    "pairs": {"file_name": "p.json", "num_samples": 7, "columns": {"prompt": "q", "response": "a", "system": null}},
    "talks": {"file_name": "t.json", "formatting": "sharegpt", "split": "train", "columns": {"messages": "m"},
              "tags": {"role_tag": "role", "content_tag": "content"}},
    "fetched": {"hf_hub_url": "somebody/i", "file_name": "i.json"},
    "hub": {"hf_hub_url": "somebody/else"},
    "script": {"script_url": "s.py", "file_name": "none.json"},
    "none": {"file_name": "none.json"}})") {
    io::write_file(temp / "dataset_info.json", info);
    for (const char* name : {"i.json", "p.json", "t.json"}) io::write_file(temp / name, std::string_view("{}"));
  }
  std::string path(const std::string& name) const { return (temp / name).native(); }

  Config with(std::vector<data::DataFile> dataset, std::vector<data::DataFile> eval = {}) const {
    Config config;
    config.dataset = std::move(dataset);
    config.eval_dataset = std::move(eval);
    config.dataset_dir = temp.path().native();
    return config;
  }
  Config found(std::vector<data::DataFile> dataset, Command command = train_command) const {
    Config config = with(std::move(dataset));
    (void)find_datasets(config, command);
    return config;
  }
  /// What is said of a name, the folder taken off.
  std::string said(const std::string& name) const {
    std::string text = test::message_of<Error>([&] { (void)found({name}); });
    for (auto at = text.find(path("")); at != text.npos; at = text.find(path(""))) text.erase(at, path("").size());
    return text;
  }
  static std::string of(std::string_view entry) { return Folder("{\"x\": " + std::string(entry) + "}").said("x"); }

  test::TempFolder temp;
};

}  // namespace

TEST_CASE("data sets: names are those of the folder's dataset_info.json, and paths stay paths") {
  const Folder folder;
  Config config = folder.with({"identity", "pairs", "talks", folder.path("i.json")}, {"fetched"});
  CHECK(find_datasets(config, train_command) == concat("identity is ", folder.path("i.json"), ", pairs is ",
                                                       folder.path("p.json"), ", talks is ", folder.path("t.json"),
                                                       ", fetched is ", folder.path("i.json")));
  REQUIRE(config.dataset.size() == 4);
  CHECK(config.dataset[0].path == folder.path("i.json"));
  CHECK(config.dataset[0].name == "identity");
  CHECK(config.dataset[0].columns.empty());
  CHECK(config.dataset[1].num_samples == 7);
  CHECK(config.dataset[1].columns.columns == data::RecordColumns::Names{{"prompt", "q"}, {"response", "a"}});
  CHECK(config.dataset[2].columns.columns == data::RecordColumns::Names{{"messages", "m"}});
  CHECK(config.dataset[2].columns.tags == data::RecordColumns::Names{{"role_tag", "role"}, {"content_tag", "content"}});
  CHECK(config.dataset[3].is_path());
  CHECK(config.eval_dataset[0].is_path());  // which has no name of its own
  CHECK(config.uses_dataset_dir == true);
  std::filesystem::remove(folder.path("i.json"));
  CHECK(find_datasets(config, train_command).empty());  // once more changes nothing
  // run_config.json says the same.
  Config again;
  read_settings(again, to_json(config, train_command), "run_config.json");
  CHECK(as_json(again.dataset) == as_json(config.dataset));
  CHECK_NOTHROW(check(again, *find_key("dataset")));
  CHECK(Folder().found({"identity"}, generate_command).dataset[0].is_path());
}

TEST_CASE("data sets: a name that the user gives a file stays, whatever the command") {
  const Folder folder;
  data::DataFile file("pairs");
  file.name = "mine";
  CHECK(folder.found({file}).dataset[0].name == "mine");
  CHECK(folder.found({file}, generate_command).dataset[0].name == "mine");
  Config config = folder.with({"identity"}, {file});
  (void)find_datasets(config, train_command);
  CHECK(config.eval_dataset[0].name == "mine");
}

TEST_CASE("data sets: a name may have slashes, be a folder's, and must be no file's") {
  const Folder folder(
      R"({"org/n": {"file_name": "i.json"}, "both": {"file_name": "i.json"}, "box": {"file_name": "p.json"}})");
  CHECK(folder.found({"org/n"}).dataset[0].path == folder.path("i.json"));
  CHECK(folder.found({"org/n#2"}).dataset[0].num_samples == 2);
  CHECK(test::holds(folder.said("no/n"), "key dataset: given no/n, which is no file"));
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(folder.temp.path());
  io::write_file("both", std::string_view("{}"));
  std::filesystem::create_directory("box");
  const std::string both = folder.said("both"), some = folder.said("both#2");
  const auto file = folder.found({"./both"}).dataset[0], box = folder.found({"box"}).dataset[0];
  std::filesystem::current_path(here);
  CHECK(both ==
        "key dataset: given both, which is a file, and a name in dataset_info.json; allowed: ./both for the file, or "
        "both "
        "for the name");
  CHECK(some == both);
  CHECK(file.path == "./both");
  CHECK(box.path == folder.path("p.json"));
}

TEST_CASE("data sets: a file_name may be a folder, and a folder of files a path") {
  const Folder folder(R"({"many": {"file_name": "parts", "num_samples": 3}, "pipe": {"file_name": "pipe"}})");
  std::filesystem::create_directory(folder.temp / "parts");
  CHECK(folder.found({"many"}).dataset[0].path == folder.path("parts"));
  CHECK(folder.found({"many"}).dataset[0].name == "many");
  CHECK(folder.found({"many"}).dataset[0].num_samples == 3);
  CHECK(folder.found({folder.path("parts")}).dataset[0].is_path());
  CHECK(folder.found({folder.path("parts#2")}).dataset[0].path == folder.path("parts"));
  CHECK(folder.found({folder.path("parts#2")}).dataset[0].num_samples == 2);
  std::filesystem::create_directory(folder.temp / "parts#2");
  CHECK(folder.found({folder.path("parts#2")}).dataset[0].is_path());
  REQUIRE(::mkfifo(folder.path("pipe").c_str(), 0600) == 0);
  CHECK(folder.said("pipe") ==
        "dataset_info.json: pipe: \"file_name\" is pipe, which is neither a file nor a folder of files");
}

TEST_CASE("data sets: a split of a file is train or a slice of it, and a subset says nothing of it") {
  const Folder folder(
      R"({"all": {"file_name": "i.json", "split": "train"}, "zh": {"file_name": "p.json", "subset": "zh"},
                          "some": {"file_name": "t.json", "split": "train[:10%]", "num_samples": 4, "folder": "f"}})");
  CHECK(folder.found({"all"}).dataset[0].split.empty());
  Config config = folder.with({"zh"}, {"some"});
  CHECK(
      find_datasets(config, train_command) ==
      concat("zh is ", folder.path("p.json"), ", some is ", folder.path("t.json"),
             "; subset zh of zh says nothing of a file, as in LLaMA-Factory; folder f of some says nothing of a file, "
             "as in LLaMA-Factory"));
  CHECK(config.eval_dataset[0].split == "train[:10%]");
  CHECK(as_json(config.eval_dataset[0]) ==
        io::json_object({{"path", folder.path("t.json")}, {"split", "train[:10%]"}, {"num_samples", 4}}));
  Config again;
  read_settings(again, to_json(config, train_command), "run_config.json");
  CHECK(again.eval_dataset == config.eval_dataset);
  data::DataFile mine("some");
  mine.split = "train[1:]";
  CHECK(folder.found({mine}).dataset[0].split == "train[1:]");
}

TEST_CASE("data sets: dataset_dir of the command line has a name, for the program and in code") {
  const Folder folder;
  const auto said = [&](data::DataFile dataset, bool line = true) {
    Config config = folder.with({std::move(dataset)});
    config.model_name_or_path = config.output_dir = "x";
    if (line) config.from_command_line.insert("dataset_dir");
    return test::message_of<ConfigError>([&] {
      (void)find_datasets(config, train_command);
      validate(config, train_command);
    });
  };
  CHECK(said("identity") == "nothing was thrown");
  CHECK(said(folder.path("i.json"), false) == "nothing was thrown");
  const std::string idle =
      concat("key dataset_dir: given ", folder.temp.path().native(),
             ", which has no effect here; allowed: with names of its dataset_info.json in dataset or "
             "eval_dataset");
  CHECK(said(folder.path("i.json")) == idle);
  CHECK(said(folder.path("i.json#1")) == idle);
}

TEST_CASE("data sets: a name with a folder is that of its own dataset_info.json") {
  const Folder folder;
  Config config;
  config.dataset = {folder.path("identity")};
  CHECK_FALSE(find_datasets(config, train_command).empty());
  CHECK(config.dataset[0].path == folder.path("i.json"));
  config = {};
  config.dataset = {"none.jsonl", "/no/such/folder/identity", folder.temp.path().native()};  // paths, of no file
  CHECK(find_datasets(config, train_command).empty());
  CHECK(config.dataset[0].path == "none.jsonl");
  CHECK(config.dataset[1].path == "/no/such/folder/identity");
  // Without an ending it was meant as a name.
  const auto said_of = [](const std::string& name, const std::string& dataset_dir) {
    Config nowhere;
    nowhere.dataset = {name};
    nowhere.dataset_dir = dataset_dir;
    return test::message_of<ConfigError>([&] { (void)find_datasets(nowhere, train_command); });
  };
  CHECK(
      said_of("identity", "/no/such") ==
      "key dataset: given identity, which is no file, and no name: there is no /no/such/dataset_info.json; allowed: a "
      "path, or a name in the dataset_info.json of dataset_dir");
  CHECK(
      said_of("identity#5", "/no/such").starts_with("key dataset: given identity#5, which is no file, and no name: "));
  CHECK(test::holds(said_of("mine/identity", "/no/such"),
                    "there is no /no/such/dataset_info.json and no mine/dataset_info.json; allowed: "));
  config = {};
  config.dataset = {folder.path("identity")};
  CHECK(find_datasets(config, merge_command).empty());
  // A list of records that a program has made is called so.
  CHECK(find_datasets(config, train_command, {{folder.path("identity"), {}}}).empty());
}

TEST_CASE("data sets: a number behind # is how many records are taken, whatever the name's num_samples") {
  const Folder folder;
  CHECK(folder.found({"identity#3"}).dataset[0].num_samples == 3);
  CHECK(folder.found({"pairs"}).dataset[0].num_samples == 7);
  CHECK(folder.found({"pairs#3"}).dataset[0].num_samples == 3);
  CHECK(folder.found({"pairs#30"}).dataset[0].num_samples == 30);
  CHECK_FALSE(folder.found({"identity"}).dataset[0].num_samples);
  data::DataFile mine("pairs");
  mine.num_samples = 9;
  CHECK(folder.found({mine}).dataset[0].num_samples == 9);
  // max_samples is a bound of those.
  Config bound = folder.with({"pairs", "identity"});
  bound.max_samples = 5;
  (void)find_datasets(bound, train_command);
  CHECK(bound.dataset[0].num_samples == 7);
  CHECK(bound.dataset[0].max_samples == 5);
  CHECK_FALSE(bound.dataset[1].num_samples);
  CHECK_FALSE(folder.found({"pairs"}).dataset[0].max_samples);
  const auto file = folder.found({folder.path("i.json#20")}).dataset[0];
  CHECK(file.path == folder.path("i.json"));
  CHECK(file.num_samples == 20);
  io::write_file(folder.temp / "i.json#20", std::string_view("{}"));
  CHECK(folder.found({folder.path("i.json#20")}).dataset[0].is_path());
  for (const char* wrong : {"identity#0", "identity#-1", "identity#x", "identity#", "#3"})
    CHECK(test::holds(folder.said(wrong), concat("given ", wrong, ", which is no file")));
  CHECK(folder.found({"/no/such#3"}).dataset[0].path == "/no/such#3");
}

TEST_CASE("data sets: max_samples is of each file where there are names, and of all paths together") {
  const Folder folder;
  Config config = folder.with({"identity", "pairs"}, {folder.path("t.json")});
  config.max_samples = 5;
  CHECK(find_datasets(config, train_command).ends_with("; max_samples 5 is of each file, as in LLaMA-Factory"));
  CHECK(config.dataset[0].max_samples == 5);
  CHECK(config.dataset[1].max_samples == 5);
  CHECK(config.eval_dataset[0].max_samples == 5);
  CHECK_FALSE(config.max_samples);
  config = folder.with({folder.path("i.json"), folder.path("p.json")});
  config.max_samples = 5;
  CHECK(find_datasets(config, train_command).empty());
  CHECK(config.max_samples == 5);
  CHECK(config.dataset[0].is_path());
}

TEST_CASE("data sets: a name that is neither a file nor there lists those that are") {
  const Folder folder;
  CHECK(folder.said("identiti") ==
        "key dataset: given identiti, which is no file, and no name in dataset_info.json; allowed: a path, or one of "
        "identity, pairs, talks, fetched, hub, script, none; nearest: identity");
  Config config = folder.with({folder.path("i.json")}, {"x"});
  CHECK(test::holds(test::message_of<ConfigError>([&] { (void)find_datasets(config, train_command); }),
                    "key eval_dataset: given x, which is no file"));
  std::string many = "{\"n0\": {}";
  for (int i = 1; i < 50; ++i) many += concat(", \"n", i, "\": {}");
  CHECK(test::holds(Folder(many + "}").said("other"), ", n39, ..."));
}

TEST_CASE("data sets: what is at a hub, of preferences or of media is refused with what to do") {
  const Folder folder;
  const std::string folder_name = folder.temp.path().native();
  CHECK(folder.said("hub") ==
        "dataset_info.json: hub: \"hf_hub_url\" is somebody/else, and nothing is downloaded; expected \"file_name\" "
        "with the name of its file in " +
            folder_name);
  CHECK(test::holds(folder.said("script"), "script: \"script_url\" is s.py, and nothing is downloaded; expected"));
  CHECK(folder.said("none") ==
        concat("dataset_info.json: none: \"file_name\" is none.json, and there is no such file in ",
               std::string_view(folder_name)));
  CHECK(test::holds(Folder::of("{}"), "x: \"file_name\" is missing"));
  CHECK(test::holds(Folder::of("[]"), "x: expected an object"));
  CHECK(test::holds(Folder::of(R"({"file_name": ""})"), "x: \"file_name\" is empty"));
  CHECK(test::holds(Folder::of(R"({"file_name": "i.json", "ranking": true})"),
                    "x: \"ranking\" is true: preference data"));
  CHECK(test::holds(Folder::of(R"({"file_name": "i.json", "num_samples": 0})"),
                    "x: \"num_samples\" is 0; expected 1 or more"));
  for (const char* split : {"test", "train_sft", "train+test", "train[:1.5%]"})
    CHECK(test::holds(
        Folder::of(concat(R"({"file_name": "i.json", "split": ")", split, "\"}")),
        concat("x: \"split\" is ", split, ", and the records of a file are of no split but train; expected")));
  for (const char* part : {"subset", "folder"})
    CHECK(test::holds(Folder::of(concat(R"({"hf_hub_url": "a/b", "file_name": "i.json", ")", part, R"(": "zh"})")),
                      concat("x: \"", part,
                             "\" is zh, of the data set at \"hf_hub_url\"; expected \"file_name\" alone, with the file "
                             "that it means")));
  CHECK(test::holds(
      Folder::of(R"({"file_name": "i.json", "colums": {}})"),
      "x: the field \"colums\"; expected file_name, formatting, columns, tags, num_samples, ranking, split, "
      "subset, folder, hf_hub_url, ms_hub_url, om_hub_url, script_url, cloud_file_name"));
  CHECK(test::holds(Folder::of(R"({"file_name": "i.json", "formatting": "chatml"})"),
                    "x: \"formatting\" is chatml; expected alpaca, sharegpt or openai"));
  CHECK(test::holds(Folder::of(R"({"file_name": "i.json", "columns": []})"),
                    "x: \"columns\" must be an object of names"));
  CHECK(test::holds(Folder::of(R"({"file_name": "i.json", "columns": {"images": "i"}})"),
                    "x: the column images; expected none: records of text alone are supported"));
  CHECK(test::holds(Folder::of(R"({"file_name": "i.json", "columns": {"chosen": "c"}})"),
                    "x: the column chosen: preference data, which are not supported"));
  CHECK(test::holds(Folder::of(R"({"file_name": "i.json", "columns": {"response": "c"}})"),
                    "x: columns or tags with neither prompt nor messages"));
  CHECK(test::holds(Folder::of(R"({"file_name": "i.json", "columns": {"messages": "c"}})"),
                    "x: \"formatting\" is alpaca, which has no messages and tags; expected sharegpt"));
  CHECK(test::holds(Folder::of(R"({"file_name": "i.json", "formatting": "sharegpt", "columns": {"prompt": "c"}})"),
                    "x: \"formatting\" is sharegpt, which has no prompt; expected alpaca"));
  CHECK(test::holds(Folder("{").said("x"), "dataset_info.json:1:2: "));
}

TEST_CASE("data sets: a file's columns and tags stand in its object, and are checked") {
  const auto files = [](std::string_view text) {
    Config config;
    set_from_text(config, *find_key("dataset"), text);
    return config.dataset;
  };
  const auto said = [&](std::string_view text) { return test::message_of<ConfigError>([&] { (void)files(text); }); };
  CHECK(files(R"({"path": "a", "columns": {"prompt": "q", "response": "a"}})")[0].columns.columns ==
        data::RecordColumns::Names{{"prompt", "q"}, {"response", "a"}});
  CHECK(test::holds(said(R"({"path": "a", "columns": 1})"),
                    "key dataset: file 1: \"columns\" must be an object of names"));
  CHECK(test::holds(said(R"({"path": "a", "tags": {"user_tag": 1}})"), "\"user_tag\" must be a string, found 1"));
  CHECK(test::holds(said(R"({"path": "a", "columns": {"x": "q"}})"),
                    "file 1: columns or tags with the name \"x\"; expected"));
  Config config;
  config.dataset = {"a"};
  config.dataset[0].columns.columns = {{"prompt", "\xFF"}};
  CHECK_THROWS_AS(check(config, *find_key("dataset")), ConfigError);
  config.dataset[0].columns.columns = {{"prompt", ""}};
  CHECK_THROWS_AS(check(config, *find_key("dataset")), ConfigError);
  CHECK(test::holds(test::message_of<ConfigError>([&] { set_from_text(config, *find_key("dataset_dir"), "ONLINE"); }),
                    "key dataset_dir: given ONLINE, allowed: a folder: nothing is downloaded"));
}

}  // namespace dataset_info_test
