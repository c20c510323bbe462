// The program's contract with those who call it wrongly: one line, exit 2 for usage and 1 for data, nothing written.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/io/files/file.hpp"
#include "lora/settings/keys.hpp"
#include "lora/settings/settings.hpp"
#include "lora/settings/unknown_key.hpp"
#include "support/program.hpp"
#include "support/temp_folder.hpp"

namespace command_line_test {

using namespace lora;

namespace {

test::Outcome lora_program(const std::vector<std::string>& words) {
  return test::run_program(LORA_PROGRAM, std::span(words));
}

/// One line on standard error that begins so, nothing on standard output.
void check_refused(const test::Outcome& outcome, int status, const std::string& beginning) {
  CAPTURE(outcome.errors);
  CHECK(outcome.status == status);
  CHECK(outcome.errors.starts_with("error: " + beginning));
  CHECK(std::count(outcome.errors.begin(), outcome.errors.end(), '\n') == 1);
  CHECK(outcome.output.empty());
}

/// What each command's page says of it, above and below its keys.
struct Page {
  settings::Command command;
  const char* does;
  const char* example;
};
constexpr Page pages[] = {
    {settings::train_command, "Fine-tunes a model: an adapter (LoRA) or, with finetuning_type full, its own weights.",
     "lora train --model_name_or_path MODEL --dataset train.json --output_dir OUT"},
    {settings::eval_command, "Measures loss and perplexity on a data set, and with predict exact matches.",
     "lora eval --model_name_or_path MODEL --adapter_name_or_path OUT/final_model --dataset test.json --output_dir "
     "EVAL"},
    {settings::generate_command, "Answers a prompt, or every record of a data set.",
     "lora generate --model_name_or_path MODEL --adapter_name_or_path OUT/final_model --prompt \"Hello\""},
    {settings::chat_command, "Talks with a model, in a terminal or by lines of a pipe.",
     "lora chat --model_name_or_path MODEL --adapter_name_or_path OUT/final_model"},
    {settings::merge_command, "Writes base and adapter as one plain model folder.",
     "lora merge --model_name_or_path MODEL --adapter_name_or_path OUT/final_model --output_dir MERGED"},
    {settings::export_command,
     "Writes a model, merged with its adapter, or the adapter alone as a GGUF file, for llama.cpp.",
     "lora export --model_name_or_path MODEL --adapter_name_or_path OUT/final_model --output_file model.gguf"},
    {settings::tokenize_command, "Prints the token ids of texts, a JSON array per line.",
     "lora tokenize --model_name_or_path MODEL --text \"Hello\""},
    {settings::plan_command,
     "Tells what a training would take, in memory and time, before anything is loaded; keys of train that change "
     "neither are taken as well.",
     "lora plan --model_preset qwen2.5-7b --device_type ascend910b3 --cutoff_len 2048 --all"},
    {settings::report_command,
     "Writes a page with the curves, scores and settings of a run, or of several side by side.",
     "lora report OUT OTHER --output_file compared.html"},
    {settings::doctor_command, "Tells what this machine and this build have for training, and what is missing.",
     "lora doctor"}};

/// An option and its words, which have the columns from 34 to 109; a long option has a line of its own.
std::string option(const std::string& name, const std::string& words) {
  constexpr std::size_t column = 34, width = 110;
  std::string text = "  " + name, line;
  text += text.size() > column - 2 ? "\n" + std::string(column, ' ') : std::string(column - text.size(), ' ');
  std::istringstream rest(words);
  for (std::string word; rest >> word; line += (line.empty() ? "" : " ") + word)
    if (column + line.size() + (line.empty() ? 0 : 1) + word.size() > width)
      text += std::exchange(line, "") + "\n" + std::string(column, ' ');
  return text + line + "\n";
}

constexpr const char* all_names = "train, eval, generate, chat, merge, export, tokenize, plan, report, doctor, launch";

}  // namespace

TEST_CASE("program: the program's page has its commands, and each command's its keys by groups, word for word") {
  std::string whole =
      "Fine-tunes language models, with LoRA or in full.\nUsage: lora COMMAND [--key value ...]\n\nOptions:\n" +
      option("-h,--help", "Prints this page") + option("--version", "Prints the version") +
      option("--man-page", "Prints the manual page, as man -l reads it") +
      option("--bash-completion", "Prints a script by which bash completes commands, keys and values") +
      "\nCommands:\n";
  for (const Page& page : pages) {
    const std::string name(settings::name_of(page.command));
    whole += "  " + name + std::string(28 - name.size(), ' ') + page.does + "\n";
    std::vector<std::string> groups = {"file"};
    std::map<std::string, std::string> options;
    options["file"] =
        option("-h,--help", "Prints this page") +
        option("--config FILE", "JSON or YAML file of keys, comments allowed; the command line wins over it");
    for (const auto& key : settings::keys()) {
      if ((key.commands & page.command) == 0) continue;
      const std::string group(key.group), otherwise = settings::default_text(key);
      if (!options.contains(group)) groups.push_back(group);
      std::string words(key.help);
      const std::string range = key.choices.empty() ? settings::describe(key.range) : settings::allowed(key);
      if (!range.empty()) words += "; " + range;
      if (!otherwise.empty()) words += " (default: " + otherwise + ")";
      const std::string type = settings::is_switch(key) ? "" : concat(" ", name_of(settings::type_of(key)));
      options[group] += option(concat("--", key.name, type), words);
    }
    std::string expected = concat(page.does, "\nUsage: lora ", name, " [--key value ...]\n");
    for (const std::string& group : groups) expected += concat("\n", group, ":\n", options[group]);
    expected += concat(
        "\nKeys are given as --key value, --key=value, or in the file of --config; a switch may stand alone or\n",
        "take true or false; lists are comma-separated.\n\n  ", page.example, "\n");
    CAPTURE(name);
    CHECK(lora_program({name, "--help"}).output == expected);
  }
  whole +=
      "  launch                      Starts several processes of train, by mpirun or one for each NPU: its options, "
      "then train with its keys.\n";
  whole += "\n'lora COMMAND --help' and 'lora help COMMAND' print the keys of a command.\n";
  CHECK(lora_program({"--help"}).output == whole);
  CHECK(lora_program({"-h"}).output == whole);
  CHECK(lora_program({"merge", "-h"}).output == lora_program({"merge", "--help"}).output);
}

TEST_CASE("program: a wrong word is refused with the whole of what is allowed, and told without control characters") {
  const auto refused = [](std::initializer_list<std::string> words, const std::string& message) {
    const auto outcome = lora_program(words);
    CHECK(outcome.status == 2);
    CHECK(outcome.output.empty());
    CHECK(outcome.errors == "error: " + message + "\n");
  };
  refused({}, concat("no command; allowed: ", all_names, "; see 'lora --help'"));
  refused({"tr\x1B"
           "ain\n"},
          concat("unknown command tr\\x1B"
                 "ain\\n; allowed: ",
                 all_names, "; nearest: train"));
  refused({"mergee"}, concat("unknown command mergee; allowed: ", all_names, "; nearest: merge"));
  for (const auto& foreign : settings::foreign_commands) {
    const std::string name(foreign.name);
    refused({name}, concat("unknown command ", name, "; here: ", foreign.here, "; allowed: ", all_names));
  }
  // What begins with a digit behind its dash is a value, and a dash alone a word.
  for (const char* word : {"-0", "-5", "-9", "-", "help", "a b"})
    refused({"train", word},
            concat("given '", word,
                   "', allowed: keys as --key value or --key=value; a text with spaces needs quotes, several files "
                   "have commas between them, keys of a file --config or a name that ends in .json, .yaml or .yml"));
  refused({"train", "--foo", "-9", "--bar", "-0.5", "-x", "--y="},
          "unknown keys --foo (given -9), --bar (given -0.5), -x, --y; allowed: the keys of 'lora train --help'");
  for (const char* command : {"train", "eval"})
    refused({command, "two", "words"},
            "given 'two', allowed: keys as --key value or --key=value; a text with spaces needs quotes, several files "
            "have commas between them, keys of a file --config or a name that ends in .json, .yaml or .yml");
  refused({"--model_name_or_path", "m", "train", "--seed", "1"},
          "given '--model_name_or_path' before the command; allowed: lora train with its keys behind it");
  refused({"train", "--", "foo"},
          "given 'foo', allowed: keys as --key value or --key=value; a text with spaces needs quotes, several files "
          "have commas between them, keys of a file --config or a name that ends in .json, .yaml or .yml");
  refused({"train", "--config"}, "--config: given nothing, allowed: a file");
  refused({"train", "--seed"}, "key seed: given nothing, allowed: a whole number, at least 0");
  refused({"train", "--shuffle", "--shuffle=false"}, "key shuffle: given 2 times, as alone and false, allowed: once");
  refused({"eval", "--predict=true", "--predict", "--predict=false"},
          "key predict: given 3 times, as true and alone and false, allowed: once");
}

TEST_CASE("program: help and version go to standard output") {
  const auto page = lora_program({"--help"});
  CHECK(page.status == 0);
  CHECK(page.errors.empty());
  for (const char* command : {"train", "eval", "generate", "merge", "tokenize", "doctor"})
    CHECK(page.output.find("\n  " + std::string(command) + " ") != std::string::npos);
  const auto version = lora_program({"--version"});
  CHECK(version.status == 0);
  CHECK(version.output == "lora " LORA_VERSION "\n");
}

TEST_CASE("program: the word help asks for the same pages") {
  CHECK(lora_program({"help"}).output == lora_program({"--help"}).output);
  const auto page = lora_program({"help", "train"});
  CHECK(page.status == 0);
  CHECK(page.output == lora_program({"train", "--help"}).output);
  CHECK(
      page.output.starts_with("Fine-tunes a model: an adapter (LoRA) or, with finetuning_type full, its own weights."));
  check_refused(lora_program({"help", "nonsense"}), 2, "unknown command nonsense; allowed: train, eval");
}

TEST_CASE("program: each command's help has each of its keys and none of another's") {
  for (const auto command : settings::all_commands) {
    const auto page = lora_program({std::string(settings::name_of(command)), "--help"});
    CHECK(page.status == 0);
    CHECK(page.output.find("--config") != std::string::npos);
    for (const auto& key : settings::keys()) {
      const std::string name(key.name);
      CAPTURE(name);
      const bool there = page.output.find("\n  --" + name + " ") != std::string::npos ||
                         page.output.find("\n  --" + name + "\n") != std::string::npos;
      CHECK(there == ((key.commands & command) != 0));
    }
  }
}

TEST_CASE("program: the help page says what holds where a key is not given") {
  const auto page = lora_program({"train", "--help"});
  for (const char* text :
       {"(default: 0.0002)", "(default: 1e-08)", "(default: 2 x lora_rank)", "(default: linear)", "(default: true)"}) {
    CAPTURE(text);
    CHECK(page.output.find(text) != std::string::npos);
  }
}

TEST_CASE("program: what a command lacks, and a key without effect in it, is refused before its model is looked for") {
  const auto refused = [](std::initializer_list<std::string> words, const std::string& beginning) {
    check_refused(lora_program(words), 2, beginning);
  };
  refused({"eval", "--model_name_or_path=absent", "--output_dir=out"}, "key dataset: given nothing");
  refused({"generate", "--model_name_or_path=absent"}, "key prompt: given nothing");
  refused({"generate", "--model_name_or_path=absent", "--prompt=a", "--top_p=0.5"}, "key top_p: given 0.5");
  refused({"merge", "--model_name_or_path=absent", "--output_dir=out"}, "key adapter_name_or_path: given nothing");
  refused({"tokenize", "--model_name_or_path=absent"}, "key text: given nothing");
}

TEST_CASE("program: no command or an unknown one") {
  check_refused(lora_program({}), 2, "no command; allowed: train, eval, generate, chat, merge, export");
  check_refused(lora_program({"trian"}), 2, "unknown command trian; allowed: train, eval");
  CHECK(lora_program({"trian"}).errors.find("nearest: train\n") != std::string::npos);
  // Other programs'.
  check_refused(lora_program({"sft", "--model", "m"}), 2, "unknown command sft; here: train; allowed: train, eval");
  check_refused(lora_program({"serve", "--help"}), 2, "unknown command serve; here: not there: merge writes");
}

TEST_CASE("program: an unknown key names itself, what was given and the nearest") {
  for (const auto& outcome :
       {lora_program({"train", "--learning_rat", "3"}), lora_program({"train", "--learning_rat=3"})}) {
    check_refused(outcome, 2,
                  "unknown key --learning_rat (given 3; nearest: learning_rate); allowed: the keys of 'lora train");
  }
  check_refused(lora_program({"train", "--prompt=x"}), 2, "unknown key --prompt (given x; a key of generate);");
  check_refused(lora_program({"eval", "--eval_dataset", "x"}), 2,
                "unknown key --eval_dataset (given x; a key of train");
  check_refused(lora_program({"train", "word"}), 2, "given 'word'");
}

TEST_CASE("program: all unknown keys are named at once, with what they are called here") {
  check_refused(lora_program({"train", "--lr", "-1", "--bf16", "--seed", "3", "--foo=a b", "--r=8"}), 2,
                "unknown keys --lr (given -1; here: learning_rate), --bf16 (here: dtype bfloat16), --foo (given a b), "
                "--r (given 8; here: lora_rank); allowed: the keys of 'lora train --help'");
}

TEST_CASE("program: a list given twice is one list, another key given twice is refused") {
  check_refused(lora_program({"train", "--seed", "1", "--seed=2"}), 2,
                "key seed: given 2 times, as 1 and 2, allowed: once");
  check_refused(lora_program({"train", "--config", "a", "--config", "b"}), 2,
                "key config: given 2 times, as a and b, allowed: once");
  check_refused(lora_program({"train", "--lora_target", "q_proj", "--lora_target", "x_proj"}), 2,
                "key lora_target: given x_proj");
  check_refused(lora_program({"train", "--lora_target", "x_proj", "--lora_target", "q_proj"}), 2,
                "key lora_target: given x_proj");
}

TEST_CASE("program: the template's names are on the help page, and help does not answer an unknown command") {
  CHECK(lora_program({"generate", "--help"}).output.find("qwen2_5") != std::string::npos);
  check_refused(lora_program({"nonsense", "--help"}), 2, "unknown command nonsense; allowed: train, eval");
  check_refused(lora_program({"--help", "nonsense"}), 2, "unknown command nonsense");
}

TEST_CASE("program: a checkpoint to go on from is auto or a path") {
  check_refused(lora_program({"train", "--resume_from_checkpoint", "true"}), 2,
                "key resume_from_checkpoint: given true, allowed: auto (the newest complete one), or the path of a ");
}

TEST_CASE("program: a wrong value names the key, what was given and what is allowed") {
  check_refused(lora_program({"train", "--lora_rank", "0"}), 2,
                "key lora_rank: given 0, allowed: a whole number, at least 1");
  check_refused(lora_program({"train", "--lora_rank"}), 2, "key lora_rank: given nothing, allowed: a whole number");
  check_refused(lora_program({"train", "--lora_rank="}), 2, "key lora_rank: given nothing, allowed: a whole number");
  // An empty value is a value: the word after it is not.
  check_refused(lora_program({"train", "--lora_rank=", "--seed", "3"}), 2, "key lora_rank: given nothing, allowed: a ");
  const std::string no_switch = "key overwrite_output_dir: given nothing, allowed: true or false";
  check_refused(lora_program({"train", "--overwrite_output_dir="}), 2, no_switch);
  check_refused(lora_program({"train", "--overwrite_output_dir", "", "--seed", "3"}), 2, no_switch);
  check_refused(lora_program({"tokenize", "--text=", "--model_name_or_path", "/no/such"}), 1, "/no/such: no such file");
  check_refused(lora_program({"tokenize", "--text=", "x", "--model_name_or_path", "/no/such"}), 2,
                "given 'x', allowed: keys as --key value or --key=value");
  check_refused(lora_program({"train", "--dtype=float8"}), 2, "key dtype: given float8, allowed: one of auto");
  check_refused(lora_program({"train", "--shuffle", "maybe"}), 2, "key shuffle: given maybe, allowed: true or false");
  check_refused(lora_program({"train"}), 2, "key model_name_or_path: given nothing");
}

TEST_CASE("program: the file of keys") {
  const test::TempFolder folder;
  const std::string file = (folder / "run.json").native();
  check_refused(lora_program({"train", "--config"}), 2, "--config: given nothing");
  check_refused(lora_program({"train", "--config", file}), 2, "key config: cannot open " + file);
  io::write_file(file, std::string_view("{\"seed\": 1,}"));
  check_refused(lora_program({"train", "--config", file}), 2, "key config: " + file + ":1:12");
  io::write_file(file, std::string_view("{\"sede\": 1}"));
  check_refused(lora_program({"train", "--config", file}), 2,
                file + ": unknown key sede (given 1; nearest: seed); allowed: ");
  const std::string other = (folder / "run.txt").native();
  io::write_file(other, std::string_view("stage: sft\n"));
  check_refused(lora_program({"train", "--config", other}), 2, "key config: " + other + ":1:1: ");
  const std::string hint = "; a file whose name does not end in .yaml or .yml is read as JSON\n";
  CHECK(lora_program({"train", "--config", other}).errors.ends_with(hint));
  CHECK_FALSE(test::holds(lora_program({"train", "--config", other + ".none"}).errors, hint));
  io::write_file(file, std::string_view("stage: sft\n"));
  CHECK_FALSE(test::holds(lora_program({"train", "--config", file}).errors, hint));
  check_refused(lora_program({"train", "--config="}), 2, "--config: given nothing, allowed: a file");
  check_refused(lora_program({"train", "--config", ""}), 2, "key config: cannot open ");
  io::write_file(file, std::string_view("{\"seed\": \"1\"}"));
  check_refused(lora_program({"train", "--config", file}), 2,
                file + ": key seed: given \"1\", allowed: a whole number");
  // Keys of another command are accepted, and the command line wins: what is left to refuse is the model.
  io::write_file(
      file, std::string_view("// all of them\n{\"prompt\": \"p\", \"lora_rank\": 4, \"model_name_or_path\": \"a\"}"));
  check_refused(lora_program({"tokenize", "--config", file, "--model_name_or_path", "/no/such", "--text", "t"}), 1,
                "/no/such: no such file or folder");
}

TEST_CASE("program: a word that ends in .json, .yaml or .yml is the file of keys, as --config has it") {
  const test::TempFolder folder;
  const std::string file = (folder / "run.json").native();
  io::write_file(file, std::string_view("{\"lora_rank\": 0}"));
  for (const auto& words :
       {std::vector<std::string>{"train", file}, {"train", "--seed", "1", file}, {"plan", file, "--seed=1"}})
    check_refused(lora_program(words), 2, file + ": key lora_rank: given 0, allowed: a whole number");
  check_refused(lora_program({"train", "--config", file, "b.yaml"}), 2,
                "key config: given 2 times, as " + file + " and b.yaml without a key, allowed: once");
  check_refused(lora_program({"train", file, "b.json"}), 2, "given 'b.json', allowed: keys as");
  check_refused(lora_program({"train", file, "word"}), 2, "given 'word', allowed: keys as");
  check_refused(lora_program({"train", file, "my_token=SECRET"}), 2, "given 'my_token=...', allowed: keys as");
  // As other programs have it.
  check_refused(lora_program({"train", file, "learning_rate=1e-5"}), 2,
                "given 'learning_rate=1e-5', allowed: --learning_rate 1e-5");
  check_refused(lora_program({"train", file, "lr=1e-5"}), 2,
                "unknown key lr (given 1e-5; here: learning_rate); allowed: ");
  check_refused(lora_program({"train", "--hf_token", "SECRET"}), 2, "unknown key --hf_token; allowed: ");
  // The second of two data files is no file of keys; behind another key's value it is.
  for (const auto& words : {std::vector<std::string>{"train", "--dataset", "a.json", file},
                            {"train", "--dataset=a.json", file},
                            {"train", "--seed=1", "--dataset", "a.json", "b.json", file}})
    check_refused(lora_program(words), 2, "key dataset: given ");
  check_refused(lora_program({"train", file, "--dataset", file}), 2, file + ": key lora_rank: given 0");
  check_refused(lora_program({"train", "--dataset", "a.jsonl", "none.yaml"}), 2, "key config: cannot open none.yaml");
  check_refused(lora_program({file, "train"}), 2, "given '" + file + "' before the command");
  check_refused(lora_program({"train", "none.yml"}), 2, "key config: cannot open none.yml");
  // A report's words are folders, whatever they are called.
  check_refused(lora_program({"report", file}), 2, "key runs: given " + file + ", but there is no run_config.json");
}

#if defined(LORA_WITH_YAML)

TEST_CASE("program: a file of keys may be YAML, whose keys that cannot be honored are an error each") {
  const test::TempFolder folder;
  const std::string yaml = (folder / "run.yaml").native(), yml = (folder / "run.yml").native();
  for (const auto& path : {yaml, yml}) {
    io::write_file(path, std::string_view("stage: dpo\nseed: x\nbf16: true\nlr: 1\n"));
    for (const auto& words : {std::vector<std::string>{"train", path}, {"eval", "--config", path}}) {
      const auto outcome = lora_program(words);
      CHECK(outcome.status == 2);
      CHECK(outcome.output.empty());
      CHECK(outcome.errors ==
            "error: " + path +
                ":1: key stage: given dpo; here: not there: train learns from answers, not from preferences\n"
                "error: " +
                path + ":2: key seed: given x, allowed: a whole number, at least 0\nerror: " + path +
                ":4: unknown key lr: given 1; here: learning_rate\n");
    }
    io::write_file(path, std::string_view("seed: 1\n a: b\n"));
    check_refused(lora_program({"train", path}), 2, "key config: " + path + ":2:3: no YAML: illegal map value");
  }
  // Keys of other commands are accepted, what others say anyway is told, and the command line wins.
  io::write_file(yaml, std::string_view("stage: sft\nlora_rank: 4\nmodel_name_or_path: a\nbf16: true\n"));
  const auto outcome = lora_program({"tokenize", yaml, "--model_name_or_path", "/no/such", "--text", "t"});
  CHECK(outcome.status == 1);
  CHECK(outcome.errors == yaml + ": nothing to do for stage; bf16 true is dtype bfloat16\n" +
                              "error: /no/such: no such file or folder\n");
  // What follows from several keys is settled with those of the command line; what a key means, by the command.
  io::write_file(yaml, std::string_view("eval_strategy: steps\nval_size: 0.1\ndo_train: false\n"));
  check_refused(lora_program({"train", yaml, "--eval_steps=5"}), 2, yaml + ":3: key do_train: given false; ");
  CHECK(lora_program({"eval", yaml, "--dataset=d.jsonl"})
            .errors.starts_with(yaml + ": nothing to do for do_train, eval_strategy\n"
                                       "error: key model_name_or_path: given nothing"));
  io::write_file(yaml, std::string_view("{\"lora_rank\": 0}"));  // which is YAML as well
  check_refused(lora_program({"train", yaml}), 2, yaml + ":1: key lora_rank: given 0, allowed: a whole number");
}

#endif

TEST_CASE("program: a file of DeepSpeed's is held against the processes that a launcher has started") {
  const test::TempFolder folder;
  const std::string file = (folder / "ds.json").native();
  io::write_file(file, std::string_view("{\"train_batch_size\": 5, \"gradient_accumulation_steps\": 2}"));
  for (const int processes : {1, 3}) {
    const auto outcome = test::run_program(
        concat("WORLD_SIZE=", processes, " " LORA_PROGRAM),
        {"train", "--model_name_or_path=m", "--dataset=d.jsonl", "--output_dir=o", "--deepspeed=" + file});
    check_refused(
        outcome, 2,
        concat("key deepspeed: ", std::string_view(file), " has train_batch_size 5, but a step has ", 2 * processes,
               " sequences: per_device_train_batch_size 1 x gradient_accumulation_steps 2 x processes ", processes,
               "\n"));
  }
}

TEST_CASE("program: a model that is not there is a matter of data, and nothing is written") {
  const test::TempFolder folder;
  const std::string output = (folder / "out").native();
  for (const char* command : {"train", "eval"})
    check_refused(lora_program({command, "--model_name_or_path", "/no/such", "--dataset", "/no/data.json",
                                "--output_dir", output}),
                  1, "/no/such: no such file or folder");
  check_refused(lora_program({"merge", "--model_name_or_path", "/no/such", "--adapter_name_or_path", "/no/adapter",
                              "--output_dir", output}),
                1, "/no/such: no such file or folder");
  check_refused(lora_program({"generate", "--model_name_or_path", "/no/such", "--prompt", "hi"}), 1,
                "/no/such: no such");
  CHECK_FALSE(std::filesystem::exists(output));
  const auto hub = lora_program({"generate", "--model_name_or_path", "nobody/no-such-model", "--prompt", "hi"});
  check_refused(hub, 1, "nobody/no-such-model: no such file or folder, and not in the local cache");
  CHECK(hub.errors.find("hf download nobody/no-such-model") != std::string::npos);
}

}  // namespace command_line_test
