// What the commands say of data that leave a key or the whole run without effect.

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/files/read_file.hpp"
#include "support/message_of.hpp"
#include "support/program.hpp"
#include "support/talking_model.hpp"
#include "support/temp_folder.hpp"

namespace data_test {

using namespace lora;

TEST_CASE("program: template is refused on the command line where training, evaluation or answers have no use for it") {
  const test::TempFolder temp;
  test::write_talking_model(temp / "model");
  io::write_file(temp / "texts.jsonl", std::string_view("{\"text\": \"one two three\"}\n"));
  io::write_file(temp / "ids.jsonl", std::string_view("{\"input_ids\": [1, 2, 3], \"labels\": [1, 2, 3]}\n"));
  for (const char* data : {"texts.jsonl", "ids.jsonl"})
    for (const std::string command : {"train", "eval", "generate", "preview"}) {
      CAPTURE(data);
      CAPTURE(command);
      std::vector<std::string> words = {command == "preview" ? "train" : command, "--threads=1",
                                        "--model_name_or_path=" + (temp / "model").native(),
                                        "--dataset=" + (temp / data).native(), "--template=chatml"};
      if (command == "preview") words.push_back("--preview=1");
      if (command == "train" || command == "eval") words.push_back("--output_dir=" + (temp / "out").native());
      const auto outcome = test::run_program(LORA_PROGRAM, words);
      CHECK(outcome.status == 2);
      CHECK(test::holds(outcome.errors, "key template: given, which has no effect here; allowed: with conversations"));
      CHECK_FALSE(std::filesystem::exists(temp / "out"));
    }
}

TEST_CASE("program: text_column is refused on the command line where no record is a plain text") {
  const test::TempFolder temp;
  test::write_talking_model(temp / "model");
  const auto run = [&](std::string_view record) {
    io::write_file(temp / "data.jsonl", std::string(record) + "\n");
    return test::run_program(LORA_PROGRAM, {"train", "--threads=1", "--preview=1", "--template=chatml",
                                            "--text_column=body", "--model_name_or_path=" + (temp / "model").native(),
                                            "--dataset=" + (temp / "data.jsonl").native()});
  };
  const auto refused = run(R"({"prompt": "a", "completion": "b"})");
  CHECK(refused.status == 2);
  CHECK(test::holds(refused.errors, "key text_column: given, which has no effect here; allowed: with plain texts"));
}

TEST_CASE("program: a preview names the fields that are not used") {
  const test::TempFolder temp;
  test::write_talking_model(temp / "model");
  io::write_file(temp / "data.jsonl", std::string_view("{\"text\": \"a b\", \"colour\": 1, \"size\": 2}\n"));
  const auto outcome = test::run_program(
      LORA_PROGRAM, {"train", "--threads=1", "--preview=1", "--model_name_or_path=" + (temp / "model").native(),
                     "--dataset=" + (temp / "data.jsonl").native()});
  CHECK(outcome.status == 0);
  CHECK(test::holds(outcome.output, "a b"));
  CHECK(test::holds(outcome.errors, "data.jsonl: fields of records that are not used: colour, size"));
}

#if defined(LORA_WITH_CSV)

TEST_CASE("program: tables are trained on, shown and tokenized as records of JSON are") {
  const test::TempFolder temp;
  test::write_talking_model(temp / "model");
  io::write_file(temp / "d.csv", std::string_view("prompt,completion,note\n\"a, \"\"b\"\"\",c,1\nd,\"e\nf\",2\n"));
  io::write_file(temp / "d.jsonl", std::string_view("{\"prompt\": \"a, \\\"b\\\"\", \"completion\": \"c\"}\n"
                                                    "{\"prompt\": \"d\", \"completion\": \"e\\nf\"}\n"));
  const auto run = [&](std::vector<std::string> words, const char* key, const std::string& data) {
    words.insert(words.end(), {"--model_name_or_path=" + (temp / "model").native(), "--template=chatml",
                               std::string(key) + (temp / data).native()});
    return test::run_program(LORA_PROGRAM, words);
  };
  const auto previewed = [&](const std::string& data) {
    return run({"train", "--threads=1", "--preview=2"}, "--dataset=", data);
  };
  CHECK(previewed("d.csv").status == 0);
  const auto without_places = [&](std::string text, const std::string& data, int first) {
    for (const int line : {first, first + 1}) {
      const std::string place = (temp / data).native() + ":" + std::to_string(line);
      const auto at = text.find(place);
      REQUIRE(at != text.npos);
      text.erase(at, place.size());
    }
    return text;
  };
  CHECK(without_places(previewed("d.csv").output, "d.csv", 2) ==
        without_places(previewed("d.jsonl").output, "d.jsonl", 1));
  CHECK(test::holds(previewed("d.csv").errors, "d.csv: fields of records that are not used: note"));
  CHECK(run({"tokenize"}, "--file=", "d.csv").output == run({"tokenize"}, "--file=", "d.jsonl").output);
  const auto trained = [&](const std::string& data, const std::string& out) {
    const auto outcome =
        run({"train", "--threads=1", "--max_steps=2", "--save_steps=0", "--output_dir=" + (temp / out).native(),
             "--eval_steps=1", "--eval_dataset=" + (temp / data).native()},
            "--dataset=", data);
    CHECK(outcome.status == 0);
    return io::read_file(temp / out / "final_model" / "adapter_model.safetensors");
  };
  CHECK(trained("d.csv", "a") == trained("d.jsonl", "b"));

  io::write_file(temp / "d.csv", std::string_view("prompt,completion\na,b\nc,d,e\n"));
  const auto ragged = previewed("d.csv");
  CHECK(ragged.status == 1);
  CHECK(ragged.errors.ends_with(
      "d.csv:3:5: a row of 3 cells, expected 2, as many as the first row names; what holds a separator "
      "stands in quotes\n"));
}

#endif

TEST_CASE("program: training on data sets by their names") {
  const test::TempFolder temp;
  test::write_talking_model(temp / "model");
  std::filesystem::create_directory(temp / "data");
  io::write_file(temp / "data" / "dataset_info.json", std::string_view(R"({
    "pairs": {"file_name": "p.jsonl", "columns": {"prompt": "q", "response": "a"}},
    "talks": {"file_name": "t.jsonl", "formatting": "sharegpt", "columns": {"messages": "talk"},
              "tags": {"role_tag": "who", "content_tag": "says", "user_tag": "me", "assistant_tag": "you"}}})"));
  io::write_file(temp / "data" / "p.jsonl", std::string_view("{\"q\": \"one\", \"a\": \"two\", \"colour\": 1}\n"));
  io::write_file(
      temp / "data" / "t.jsonl",
      std::string_view("{\"talk\": [{\"who\": \"me\", \"says\": \"three\"}, {\"who\": \"you\", \"says\": \"four\"}]}\n"
                       "{\"talk\": []}\n"));
  const std::string file = (temp / "run.json").native(), data = (temp / "data").native();
  io::write_file(file, concat("{\"model_name_or_path\": \"", (temp / "model").native(),
                              "\", \"dataset\": \"pairs,talks\", \"dataset_dir\": \"", std::string_view(data),
                              "\", \"template\": \"chatml\", \"max_samples\": 1, \"gradient_accumulation_steps\": 1,",
                              "\"max_steps\": 2, \"output_dir\": \"", (temp / "out").native(), "\"}"));
  const auto trained = test::run_program(LORA_PROGRAM, {"train", file, "--threads=1"});
  CAPTURE(trained.errors);
  CHECK(trained.status == 0);
  CHECK(test::holds(trained.errors,
                    concat("pairs is ", std::string_view(data), "/p.jsonl, talks is ", std::string_view(data),
                           "/t.jsonl; max_samples 1 is of each file, as in LLaMA-Factory\n")));
  CHECK(test::holds(trained.errors, "fields of records that are not used: colour"));
  CHECK(std::filesystem::exists(temp / "out" / "final_model"));
  // The run's own settings are those of another, which has the same records.
  const auto again = test::run_program(
      LORA_PROGRAM, {"train", (temp / "out" / "run_config.json").native(), "--preview=2", "--threads=1"});
  CAPTURE(again.errors);
  CHECK(again.status == 0);
  for (const char* word : {"one", "two", "three", "four"}) CHECK(test::holds(again.output, word));
  const auto none = test::run_program(LORA_PROGRAM, {"train", file, "--dataset=pair"});
  CHECK(none.status == 2);
  CHECK(test::holds(none.errors, "key dataset: given pair, which is no file, and no name in "));
  const auto idle =
      test::run_program(LORA_PROGRAM, {"train", file, "--dataset=" + data + "/p.jsonl", "--dataset_dir=" + data});
  CHECK(idle.status == 2);
  CHECK(test::holds(idle.errors,
                    "key dataset_dir: given " + data + ", which has no effect here; allowed: with names of"));
  // More records than there are: the same again.
  const auto more = test::run_program(
      LORA_PROGRAM, {"train", file, "--dataset=pairs#2", "--max_samples=2", "--preview=2", "--threads=1"});
  CAPTURE(more.errors);
  CHECK(more.status == 0);
  CHECK(test::holds(more.errors, data + "/p.jsonl: 2 records are asked for and 1 are there: each comes 2 times\n"));
  std::filesystem::remove(temp / "data" / "p.jsonl");
  const auto gone = test::run_program(LORA_PROGRAM, {"train", file});
  CHECK(gone.status == 1);
  CHECK(gone.errors == "error: " + data + "/dataset_info.json: pairs: \"file_name\" is p.jsonl, and there is no such " +
                           "file in " + data + "\n");
}

#if defined(LORA_WITH_YAML)

TEST_CASE("program: records are of the kind that a file of LLaMA-Factory's calls them") {
  const test::TempFolder temp;
  test::write_talking_model(temp / "model");
  io::write_file(temp / "d.jsonl", std::string_view("{\"instruction\": \"one\", \"output\": \"two\"}\n"));
  const std::string yaml = (temp / "run.yaml").native();
  for (const std::string_view stage : {"pt", "sft"}) {
    io::write_file(yaml, concat("model_name_or_path: ", (temp / "model").native(), "\nstage: ", stage,
                                "\ntemplate: chatml\ndataset: ", (temp / "d.jsonl").native(), "\n"));
    const auto outcome = test::run_program(LORA_PROGRAM, {"train", yaml, "--preview=1"});
    CAPTURE(outcome.errors);
    CHECK(outcome.status == (stage == "pt" ? 2 : 0));
    CHECK(test::holds(outcome.errors, stage == "pt" ? yaml + ":2: key stage: given pt, but " +
                                                          (temp / "d.jsonl").native() + " begins with a conversation; "
                                                    : yaml + ": nothing to do for stage\n"));
  }
}

TEST_CASE(
    "program: files of LLaMA-Factory that predict or infer are for eval and chat, and name the model's template") {
  const test::TempFolder temp;
  const std::string model = (temp / "model").native(), predict = (temp / "predict.yaml").native(),
                    infer = (temp / "infer.yaml").native();
  test::write_talking_model(model, DType::f32, {.family = "llama"});
  io::create_folders(temp / "data");
  io::write_file(temp / "data" / "dataset_info.json", std::string_view(R"({"pairs": {"file_name": "p.json"}})"));
  io::write_file(temp / "data" / "p.json", std::string_view(R"([{"instruction": "one", "output": "two"}])"));
  const auto run = [](const std::vector<std::string>& words) { return test::run_program(LORA_PROGRAM, words); };
  const std::string begin = concat("model_name_or_path: ", std::string_view(model), "\ntemplate: llama2\n");
  io::write_file(predict, concat(std::string_view(begin), "do_predict: true\neval_dataset: pairs\ndataset_dir: ",
                                 (temp / "data").native(), "\nmax_samples: 50\noutput_dir: ", (temp / "out").native(),
                                 "\npredict_with_generate: true\nmax_new_tokens: 2\n"));
  io::write_file(infer, concat(std::string_view(begin), "infer_backend: huggingface\ntrust_remote_code: true\n"));
  const auto train = run({"train", predict});
  CHECK(train.status == 2);
  CHECK(train.errors == "error: " + predict +
                            ":3: key do_predict: given true; here: not there: train and plan are of training; "
                            "the command eval is for a file that predicts\n");
  // Neither can run while the model has no template.
  for (const auto& words : {std::vector<std::string>{"eval", predict}, {"chat", infer}}) {
    const auto none = run(words);
    CHECK(none.status == 2);
    CHECK(test::holds(none.errors, "template llama2 is template auto, the model's own"));
    CHECK(
        test::holds(none.errors, "error: " + model + "/tokenizer.json: the model has no chat template; set template "));
  }
  io::write_file(temp / "model" / "chat_template.jinja",
                 std::string_view("{% for m in messages %}{{ m.role + ': ' + m.content + '<|im_end|>' }}{% endfor %}"
                                  "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"));
  const auto eval = run({"eval", predict, "--threads=1"});
  CAPTURE(eval.errors);
  CHECK(eval.status == 0);
  CHECK(eval.errors.starts_with(predict +
                                ": nothing to do for do_predict; template llama2 is template auto, the model's own; "
                                "predict_with_generate true is predict true; eval_dataset is dataset\n"));
  CHECK(std::filesystem::exists(temp / "out" / "predictions.jsonl"));
  // A file for another family's models: their text is not this one's own.
  io::write_file(temp / "other.yaml",
                 concat("model_name_or_path: ", std::string_view(model),
                        "\neval_dataset: pairs\ntemplate: gemma\ndataset_dir: ", (temp / "data").native(),
                        "\noutput_dir: ", (temp / "other").native(), "\n"));
  const auto other = run({"eval", (temp / "other.yaml").native(), "--threads=1"});
  CHECK(other.status == 2);
  CHECK(test::holds(other.errors, "error: " + (temp / "other.yaml").native() +
                                      ":3: key template: given gemma, which is the text that models of type gemma2 or "
                                      "gemma3_text carry, but " +
                                      model +
                                      " is of type llama; allowed: auto for that "
                                      "model's own, or the name of its template\n"));
  CHECK_FALSE(std::filesystem::exists(temp / "other"));
  for (const char* template_name : {"auto", "chatml"}) {
    const auto own = run({"eval", (temp / "other.yaml").native(), "--threads=1", concat("--template=", template_name)});
    CAPTURE(own.errors);
    CHECK(own.status == 0);
    CHECK(test::holds(own.errors, "eval_dataset is dataset"));
  }
  const auto chat = run({"chat", infer, "--threads=1"});
  CHECK(chat.status == 0);
  CHECK(chat.errors.starts_with(infer + ": nothing to do for infer_backend, trust_remote_code; template llama2 is "));
}

#endif

TEST_CASE("program: training tells what its data hold") {
  const test::TempFolder temp;
  test::write_talking_model(temp / "model");
  io::write_file(temp / "data.jsonl",
                 std::string_view("{\"input_ids\": [1, 2, 3], \"labels\": [-100, 2, 3]}\n"
                                  "{\"input_ids\": [1, 2, 3, 4, 5], \"labels\": [-100, -100, 3, -100, 5]}\n"));
  const auto outcome = test::run_program(
      LORA_PROGRAM, {"train", "--threads=1", "--max_steps=1", "--model_name_or_path=" + (temp / "model").native(),
                     "--output_dir=" + (temp / "out").native(), "--dataset=" + (temp / "data.jsonl").native()});
  CHECK(outcome.status == 0);
  CHECK(
      test::holds(outcome.errors, "data: 2 records, 8 tokens, 50 % labeled, 0 truncated, 0 left out; lengths 3 to 5"));
  CHECK(test::holds(outcome.errors, "adapter: rank 8, "));
  CHECK(test::holds(outcome.errors, " parameters; steps: 1 of 8 sequences, 1 an epoch"));
}

TEST_CASE("program: a token that the model does not have is an error in every command that reads records") {
  const test::TempFolder temp;
  test::write_talking_model(temp / "model");
  io::write_file(temp / "data.jsonl", std::string_view("{\"input_ids\": [1, 264, 3], \"labels\": [1, 264, 3]}\n"));
  for (const std::string command : {"train", "eval", "generate"}) {
    CAPTURE(command);
    std::vector<std::string> words = {command, "--threads=1", "--model_name_or_path=" + (temp / "model").native(),
                                      "--dataset=" + (temp / "data.jsonl").native()};
    if (command != "generate") words.push_back("--output_dir=" + (temp / "out").native());
    const auto outcome = test::run_program(LORA_PROGRAM, words);
    CHECK(outcome.status == 1);
    CHECK(test::holds(outcome.errors, "data.jsonl:1: the token id 264; the model's vocabulary has 264"));
  }
}

TEST_CASE("program: several processes of a launcher are refused where a run computes, before anything is written") {
  const test::TempFolder temp;
  test::write_talking_model(temp / "model");
  io::write_file(temp / "data.jsonl", std::string_view("{\"input_ids\": [1, 2, 3], \"labels\": [1, 2, 3]}\n"));
  for (const std::string command : {"train", "eval", "generate"}) {
    CAPTURE(command);
    std::vector<std::string> words = {command, "--threads=1", "--model_name_or_path=" + (temp / "model").native(),
                                      "--dataset=" + (temp / "data.jsonl").native(), "--device=cpu"};
    if (command != "generate") words.push_back("--output_dir=" + (temp / "out").native());
    const auto outcome = test::run_program("WORLD_SIZE=2 " LORA_PROGRAM, words);
    CHECK(outcome.status == 2);
    CHECK(test::holds(outcome.errors, "the environment's WORLD_SIZE is 2, as a launcher sets it"));
    CHECK_FALSE(std::filesystem::exists(temp / "out"));
  }
}

TEST_CASE("program: data of which nothing is learned is told by its cause, which cutoff_len need not be") {
  const test::TempFolder temp;
  test::write_talking_model(temp / "model");
  const auto message = [&](const std::string& record, std::vector<std::string> more) {
    io::write_file(temp / "data.jsonl", std::string_view(record + "\n" + record + "\n"));
    std::vector<std::string> words = {"train", "--threads=1", "--model_name_or_path=" + (temp / "model").native(),
                                      "--dataset=" + (temp / "data.jsonl").native(),
                                      "--output_dir=" + (temp / "out").native()};
    words.insert(words.end(), more.begin(), more.end());
    const auto outcome = test::run_program(LORA_PROGRAM, words);
    CHECK(outcome.status == 1);
    CHECK_FALSE(std::filesystem::exists(temp / "out"));
    return outcome.errors;
  };
  const std::string pair = R"({"prompt": "a long question", "completion": "yes")";
  const std::vector<std::string> chat = {"--template=chatml"};
  for (const auto& text : {message(pair + R"(, "weight": 0})", chat), message(R"({"text": "a", "weight": 0})", {}),
                           message(R"({"input_ids": [1, 2], "labels": [-100, -100]})", {})}) {
    CHECK(test::holds(text, "there is nothing to learn: no record has a labeled token: they, or their answers, "));
    CHECK_FALSE(test::holds(text, "cutoff_len"));
  }
  CHECK(test::holds(message(pair + "}", {"--template=chatml", "--cutoff_len=8"}),
                    "not one token is labeled within cutoff_len 8"));
  CHECK(test::holds(message(R"({"prompt": "a", "completion": ""})", {"--template=chatml", "--skip_empty_answers"}),
                    "every record is left out since its answer is empty"));
}

}  // namespace data_test
