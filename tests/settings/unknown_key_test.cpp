#include "lora/settings/unknown_key.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/files/read_file.hpp"
#include "lora/settings/foreign_keys.hpp"
#include "lora/settings/settings.hpp"
#include "support/message_of.hpp"

namespace unknown_key_test {

using namespace lora;
using namespace lora::settings;

namespace {

std::string said_of(std::string_view json) {
  return test::message_of<ConfigError>([&] {
    Config config;
    read_settings(config, io::parse_json(json, "run.json"), "run.json");
  });
}

/// What the tables of a page say of each name: commands stand left of their words, keys right, several in a row.
std::vector<std::pair<std::string, std::string>> rows_of(const char* page, bool name_first) {
  const io::Path docs = io::Path(LORA_FIXTURES).parent_path().parent_path() / "docs";
  std::istringstream lines(io::read_file(docs / page));
  std::vector<std::pair<std::string, std::string>> rows;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ") || line.starts_with("| here | ") || line.starts_with("| elsewhere | ")) continue;
    REQUIRE(line.ends_with(" |"));
    const std::size_t middle = name_first ? line.find("` | ") + 1 : line.rfind(" | ", line.find("| `", 2));
    REQUIRE(middle < line.size() - 3);
    const std::string left = line.substr(2, middle - 2), right = line.substr(middle + 3, line.size() - middle - 5);
    const std::string& names = name_first ? left : right;
    for (std::size_t begin = 0; begin < names.size();) {
      const std::size_t end = names.find('`', begin + 1);
      REQUIRE((names[begin] == '`' && end != names.npos));
      rows.emplace_back(names.substr(begin + 1, end - begin - 1), name_first ? right : left);
      begin = end + 1;
      if (begin < names.size()) REQUIRE(names.substr(begin, 2) == ", ");
      begin += 2;
    }
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

}  // namespace

TEST_CASE("unknown keys: the nearest name is the fewest edits away, a hyphen counting as an underscore") {
  CHECK(nearest_key("learning_rat", train_command) == "learning_rate");
  CHECK(nearest_key("learnign_rate", train_command) == "learning_rate");
  CHECK(nearest_key("lora-alpha", train_command) == "lora_alpha");
  CHECK(nearest_name("top-k", {"topak", "top_k"}) == "top_k");
  CHECK(nearest_key("promt", generate_command) == "prompt");
  CHECK(nearest_key("sede", train_command) == "seed");
  CHECK(nearest_name("kitten", {"sittingxxx", "mitten", "kit"}) == "mitten");
  // A letter too many, one too few, another and two that are swapped are one edit each.
  CHECK(nearest_name("topkx", {"topab", "topk"}) == "topk");
  CHECK(nearest_name("topk", {"tabk", "topkx"}) == "topkx");
  CHECK(nearest_name("topk", {"tabk", "tapk"}) == "tapk");
  CHECK(nearest_name("topk", {"tabk", "otpk"}) == "otpk");
  struct Pair {
    const char *one, *other;
    std::size_t edits;
  };
  for (const Pair& pair : {Pair{"kitten", "sitting", 3},
                           {"seed", "sede", 1},
                           {"", "abc", 3},
                           {"abc", "abc", 0},
                           {"flaw", "lawn", 2},
                           {"lora_rank", "rank", 5},
                           {"ab", "xa", 2},
                           {"ab", "bx", 2},
                           {"ab", "ba", 1}}) {
    CAPTURE(pair.one);
    CHECK(settings::detail::edits_between(pair.one, pair.other) == pair.edits);
    CHECK(settings::detail::edits_between(pair.other, pair.one) == pair.edits);
  }
}

TEST_CASE("unknown keys: a name that is not near is not offered") {
  CHECK(nearest_key("promt", train_command) == "");
  CHECK(nearest_key("lr", train_command) == "");
  CHECK(nearest_name("cosine_with_restarts", find_key("lr_scheduler_type")->choices) == "");
  CHECK(nearest_name("", {"abc", "ab"}) == "");
  CHECK(nearest_name("bloat16", find_key("dtype")->choices) == "bfloat16");
}

TEST_CASE("unknown keys: all of a file are named at once, with what they are called here") {
  CHECK(said_of(R"({"learning_rat": 0.1})") ==
        "run.json: unknown key learning_rat (given 0.1; nearest: learning_rate); allowed: the keys of --help");
  CHECK(said_of(R"({"lr": 1e-4, "seed": 1, "bf16": true, "xyzzy": null, "eval_strategy": "steps"})") ==
        "run.json: unknown keys lr (given 0.0001; here: learning_rate), bf16 (given true; here: dtype bfloat16), "
        "xyzzy (given null), eval_strategy (given \"steps\"; here: eval_steps); allowed: the keys of --help");
  CHECK(said_of("[1]") == "run.json: expected an object of keys, found array");
}

TEST_CASE("unknown keys: a value that is not for every eye stays where it is") {
  CHECK(
      said_of(R"({"HF_TOKEN": "SECRET", "my_Password": 1, "api-key": 2, "a": {"secret": [1], "b": [{"url": "u"}]}})") ==
      R"(run.json: unknown keys HF_TOKEN, my_Password, api-key, a (given {"secret":"...","b":[{"url":"..."}]}); )"
      "allowed: the keys of --help");
  for (const char* name : {"token", "hftoken", "x_SECRET", "Url"}) CHECK(is_secret(name));
  for (const char* name : {"tokens", "keys", "secret_of", "", "lora_rank"}) CHECK_FALSE(is_secret(name));
}

TEST_CASE("unknown keys: what others call a key is no key here, each name once, and names one that is") {
  std::set<std::string_view> names;
  for (const ForeignKey& foreign : foreign_keys) {
    CAPTURE(std::string(foreign.name));
    CHECK(names.insert(foreign.name).second);
    CHECK(find_key(foreign.name) == nullptr);
    const std::string_view here = foreign.here;
    if (here.find(' ') == here.npos) CHECK((here.empty() || here.starts_with("not") || find_key(here) != nullptr));
    CHECK_FALSE(here.empty());
  }
  for (const char* name : {"bf16",
                           "fp16",
                           "lr",
                           "eval_strategy",
                           "evaluation_strategy",
                           "save_strategy",
                           "optim",
                           "packing",
                           "quantization_bit",
                           "plot_loss",
                           "stage",
                           "do_train",
                           "do_eval",
                           "per_gpu_train_batch_size",
                           "max_seq_length",
                           "max_length",
                           "model_max_length",
                           "lora_r",
                           "r",
                           "target_modules",
                           "epochs",
                           "batch_size",
                           "gradient_accumulation",
                           "use_lora",
                           "output",
                           "data_path",
                           "sft_type",
                           "early_stop",
                           "vocab_size",
                           "min_delta",
                           "early_stopping_delta",
                           "neftune_alpha",
                           "model_id",
                           "merge_lora",
                           "wandb",
                           "save_path",
                           "num_beams",
                           "quant_bits",
                           "device_map",
                           "create_new_adapter",
                           "epsilon",
                           "eps",
                           "betas",
                           "beta1",
                           "ckpt",
                           "save_total",
                           "seed_everything",
                           "val_set_size",
                           "accumulate_grad_batches"}) {
    CAPTURE(name);
    CHECK(names.contains(name));
  }
}

TEST_CASE(
    "unknown keys: what others call a command is none here, each name once, and begins with one that is or says why "
    "not") {
  std::set<std::string_view> names;
  for (const ForeignCommand& foreign : foreign_commands) {
    CAPTURE(std::string(foreign.name));
    CHECK(names.insert(foreign.name).second);
    bool leads = foreign.here.starts_with("not there: ");
    for (const Command command : all_commands) {
      CHECK(name_of(command) != foreign.name);
      leads = leads || foreign.here.substr(0, foreign.here.find_first_of(", ")) == name_of(command);
    }
    CHECK(leads);
  }
  for (const char* name : {"sft", "pt", "infer", "webchat", "webui", "finetune", "serve", "deploy", "rlhf", "dpo"})
    CHECK(names.contains(name));
}

TEST_CASE("unknown keys: the pages of migration name each of them once, with the same words, and no other") {
  std::vector<std::pair<std::string, std::string>> renamed, other, commands;
  for (const ForeignKey& foreign : foreign_keys)
    if (find_key(foreign.here) != nullptr)
      renamed.emplace_back(foreign.name, concat("`", foreign.here, "`"));
    else
      other.emplace_back(foreign.name, foreign.here);
  for (const ForeignCommand& foreign : foreign_commands) commands.emplace_back(foreign.name, foreign.here);
  const auto same = [](auto expected, const auto& found) {
    std::sort(expected.begin(), expected.end());
    CHECK(found.size() == expected.size());
    for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
      CAPTURE(expected[i].first);
      CHECK(found[i].first == expected[i].first);
      CHECK(found[i].second == expected[i].second);
    }
  };
  same(renamed, rows_of("migration_renamed.md", false));
  same(other, rows_of("migration_other.md", false));
  same(commands, rows_of("migration.md", true));
}

TEST_CASE("unknown keys: the flags of the scripts that a page promises are answered") {
  const auto told = [](const char* name) {
    return test::message_of<ConfigError>(
        [&] { refuse_unknown({}, std::vector{UnknownKey{name}}, train_command, "--help"); });
  };
  CHECK(told("--max_seq_length").find("here: cutoff_len)") != std::string::npos);
  CHECK(told("--gpu_ids").find("here: not there: a process trains on the processors or on one NPU") !=
        std::string::npos);
  CHECK(told("--dataset_size").find("here: max_samples)") != std::string::npos);
  CHECK(told("--validation_split_percentage").find("here: val_size, as a fraction") != std::string::npos);
  CHECK(told("--experiment_name").find("here: output_dir)") != std::string::npos);
  CHECK(told("--stage").find("stages makes parts of a run") != std::string::npos);
  CHECK(told("--betas").find("here: adam_beta1 and adam_beta2, a number each)") != std::string::npos);
  CHECK(told("--ckpt").find("here: resume_from_checkpoint, or adapter_name_or_path for") != std::string::npos);
  CHECK(told("--seed_everything").find("here: seed)") != std::string::npos);
  // What a nearest name would be wrong about.
  CHECK(told("--epsilon").find("here: adam_epsilon)") != std::string::npos);
  CHECK(told("--vocab_size").find("here: not needed: config.json says it") != std::string::npos);
  CHECK(told("--early_stopping_delta").find("here: early_stopping_threshold)") != std::string::npos);
  CHECK(told("--device_map").find("here: device)") != std::string::npos);
  CHECK(told("--ckpt_dir").find("or after a full fine-tuning model_name_or_path)") != std::string::npos);
}

TEST_CASE("unknown keys: a long list is told whole, each name and value shortened") {
  std::vector<UnknownKey> unknown;
  for (const ForeignKey& foreign : foreign_keys) unknown.push_back({std::string(foreign.name), "true"});
  unknown.push_back({std::string(5000, 'x'), std::string(5000, 'y')});
  const std::string message =
      test::message_of<ConfigError>([&] { refuse_unknown({}, unknown, train_command, "--help"); });
  for (const ForeignKey& foreign : foreign_keys) {
    CAPTURE(std::string(foreign.name));
    const std::string_view given = is_secret(foreign.name) ? "" : "given true; ";
    CHECK(message.find(concat(foreign.name, " (", given, "here: ", foreign.here, ")")) != message.npos);
  }
  CHECK(message.find(std::string(100, 'x')) == message.npos);
  CHECK(message.find(std::string(100, 'y')) == message.npos);
}

TEST_CASE("unknown keys: a name is near within one edit per three letters, and of equals the first") {
  CHECK(nearest_name("abcdef", {"abcdxx"}) == "abcdxx");
  CHECK(nearest_name("abcdef", {"abcxxx"}) == "");
  CHECK(nearest_name("abcdefg", {"abcdxxx"}) == "abcdxxx");
  CHECK(nearest_name("abcdefg", {"abcxxxx"}) == "");
  CHECK(nearest_name("a", {"b"}) == "b");
  CHECK(nearest_name("a", {"bc"}) == "");
  CHECK(nearest_name("topx", {"tops", "topk", "top"}) == "tops");
  CHECK(settings::detail::edits_between("b-a", "_ba") == 1);  // swapped, a hyphen among them
}

TEST_CASE("unknown keys: each is told with its value, who has it or what it is here, as far as there is any") {
  const auto told = [](std::vector<UnknownKey> unknown, unsigned commands = train_command) {
    return test::message_of<ConfigError>([&] { refuse_unknown("f: ", unknown, commands, "PAGE"); });
  };
  const std::string end = "; allowed: the keys of PAGE";
  CHECK(told({{"--xyzzy"}}) == "f: unknown key --xyzzy" + end);
  CHECK(told({{"--xyzzy", "1"}}) == "f: unknown key --xyzzy (given 1)" + end);
  CHECK(told({{"--lr"}}) == "f: unknown key --lr (here: learning_rate)" + end);
  CHECK(told({{"--learning-rate", "1"}}) == "f: unknown key --learning-rate (given 1; nearest: learning_rate)" + end);
  CHECK(told({{"max_new_tokens"}}, merge_command) ==
        "f: unknown key max_new_tokens (a key of train, eval, generate, chat)" + end);
  CHECK(told({{"--max-shard-size", "x"}, {"a"}}, doctor_command) ==
        "f: unknown keys --max-shard-size (given x; a key of train, merge), a" + end);
  CHECK(told({{"device_memory_gib"}}) == "f: unknown key device_memory_gib (a key of plan)" + end);
  CHECK(told({{"json"}}) == "f: unknown key json (a key of doctor, plan)" + end);
  CHECK(told({{"predict"}}) == "f: unknown key predict (a key of eval)" + end);
  CHECK(told({{"--text"}}) == "f: unknown key --text (a key of tokenize)" + end);
  CHECK(told({{"-seed"}}) == "f: unknown key -seed (nearest: seed)" + end);
  CHECK(told({{"a\x1B", "b\nc"}, {"seed"}}, report_command) ==
        "f: unknown keys a\\x1B (given b\\nc), seed (a key of train, generate, chat)" + end);
  CHECK(told({{"--outtype"}}) == "f: unknown key --outtype (a key of export)" + end);
  CHECK(told({{"--runs"}}) == "f: unknown key --runs (a key of report)" + end);
  for (const std::size_t letters : {std::size_t{80}, std::size_t{81}}) {
    CAPTURE(letters);
    const std::string name(letters, 'q'), value(letters, 'v');
    CHECK((told({{name, value}}) == "f: unknown key " + name + " (given " + value + ")" + end) == (letters == 80));
  }
}

}  // namespace unknown_key_test
