// How answers are drawn: by keys, by the model's generation_config.json, by transformers' defaults.

#include "lora/inputs/sampling.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/io/formats/json.hpp"
#include "support/message_of.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace sampling_inputs_test {

namespace {

using namespace lora;

struct Subject {
  test::TempFolder folder;
  settings::Config config;
  std::vector<std::string> logged{};

  Subject() { test::write_random_model(folder.path(), {}); }
  io::Path file() const { return folder / "generation_config.json"; }
  decode::Sampling sampling() {
    const log::Redirect redirect([&](log::Level, std::string_view text) { logged.emplace_back(text); });
    return inputs::sampling_of(config, model::Source::open(folder.path()));
  }
  std::string said(const io::Json& advice) {
    io::write_json(file(), advice);
    return test::message_of<FormatError>([&] { (void)sampling(); });
  }
};

}  // namespace

TEST_CASE("sampling: without sample the keys alone say how answers are drawn") {
  Subject s;
  io::write_json(s.file(), {{"temperature", 0.6}, {"top_k", 20}, {"repetition_penalty", 1.1}});
  const auto plain = s.sampling();
  CHECK((plain.temperature == 0 && plain.top_p == 1 && plain.top_k == 0 && plain.min_p == 0));
  CHECK((plain.repetition_penalty == 1 && plain.seed == 42));
  s.config.temperature = 0.5;
  s.config.top_p = 0.9;
  s.config.top_k = 7;
  s.config.min_p = 0.1;
  s.config.repetition_penalty = 1.5;
  s.config.seed = 3;
  const auto own = s.sampling();
  CHECK((own.temperature == 0.5 && own.top_p == 0.9 && own.top_k == 7 && own.min_p == 0.1));
  CHECK((own.repetition_penalty == 1.5 && own.seed == 3));
  CHECK(s.logged.empty());
}

TEST_CASE("sampling: what a model's makers ask for beside that is named, where it is more than nothing") {
  Subject s;
  io::write_json(s.file(), {{"top_k", 20}, {"no_repeat_ngram_size", 3}});
  (void)s.sampling();
  CHECK(s.logged.empty());
  io::write_json(s.file(), {{"temperature", 0}, {"no_repeat_ngram_size", 3}, {"stop_strings", {"a"}}});
  (void)s.sampling();  // greedy: of that file where answers end alone
  CHECK(s.logged == std::vector<std::string>{s.file().native() + ": not followed: stop_strings"});
  s.config.sample = true;
  const auto told = [&](const io::Json& advice) {
    io::write_json(s.file(), advice);
    s.logged.clear();
    (void)s.sampling();
    const std::string begin = s.file().native() + ": not followed: ";
    const auto line =
        std::find_if(s.logged.begin(), s.logged.end(), [&](const auto& one) { return one.starts_with(begin); });
    return line != s.logged.end() ? line->substr(begin.size()) : std::string();
  };
  const io::Json list = {5};
  struct Field {
    std::string name;
    io::Json some, none;
  };
  for (const Field& field : std::vector<Field>{{"no_repeat_ngram_size", 3, 0},
                                               {"encoder_repetition_penalty", 1.5, 1.0},
                                               {"typical_p", 0.9, 1.0},
                                               {"epsilon_cutoff", 0.1, 0.0},
                                               {"eta_cutoff", 0.1, 0.0},
                                               {"min_length", 4, 0},
                                               {"min_new_tokens", 4, 0},
                                               {"num_beams", 2, 1},
                                               {"guidance_scale", 2, 1},
                                               {"bad_words_ids", io::Json::array({list}), nullptr},
                                               {"suppress_tokens", list, io::Json::array()},
                                               {"begin_suppress_tokens", list, nullptr},
                                               {"sequence_bias", io::Json::array({list}), io::Json::array()},
                                               {"encoder_no_repeat_ngram_size", 2, 0},
                                               {"top_h", 0.5, nullptr},
                                               {"watermarking_config", {{"bias", 2}}, nullptr},
                                               {"forced_eos_token_id", list, nullptr},
                                               {"exponential_decay_length_penalty", io::Json::array({5, 1.5}), nullptr},
                                               {"stop_strings", "end", nullptr}}) {
    CAPTURE(field.name);
    CHECK(told({{field.name, field.some}}) == field.name);
    CHECK(told({{field.name, field.none}}).empty());
  }
  CHECK(told({{"top_k", 20}, {"stop_strings", {"a"}}, {"typical_p", 0.5}}) == "typical_p, stop_strings");
}

TEST_CASE("sampling: sample takes what is not given from the model's file, else transformers' defaults, and tells so") {
  Subject s;
  s.config.sample = true;
  const auto defaults = s.sampling();
  CHECK((defaults.temperature == 1 && defaults.top_k == 50 && defaults.top_p == 1 && defaults.min_p == 0));
  CHECK(s.logged == std::vector<std::string>{"as transformers' defaults: temperature 1, top_k 50"});
  s.logged.clear();
  io::write_json(s.file(),
                 {{"temperature", 0.6}, {"top_p", 0.95}, {"top_k", 20}, {"min_p", 0.01}, {"repetition_penalty", 1.1}});
  s.config.top_k = 0;  // all, which is not the same as not given
  const auto advised = s.sampling();
  CHECK((advised.temperature == 0.6 && advised.top_p == 0.95 && advised.top_k == 0 && advised.min_p == 0.01));
  CHECK(advised.repetition_penalty == 1.1);
  CHECK(s.logged ==
        std::vector<std::string>{
            concat("of ", s.file().native(), ": temperature 0.6, top_p 0.95, min_p 0.01, repetition_penalty 1.1")});
  s.logged.clear();
  io::write_json(s.file(), {{"temperature", nullptr}, {"do_sample", false}});
  s.config.top_k.reset();
  s.config.temperature = 0.25;
  const auto some = s.sampling();
  CHECK((some.temperature == 0.25 && some.top_k == 50));
  CHECK(s.logged == std::vector<std::string>{"as transformers' defaults: top_k 50"});
}

TEST_CASE("sampling: advice with which nothing can be drawn is an error that names it") {
  Subject s;
  s.config.sample = true;
  const std::string file = s.file().native();
  CHECK(s.said({{"temperature", 0.0}}) == file + ": \"temperature\" is 0; expected a number above 0");
  CHECK(s.said({{"top_p", 1.5}}) == file + ": \"top_p\" is 1.5; expected a number above 0, at most 1");
  CHECK(s.said({{"top_k", -1}}) == file + ": \"top_k\" is -1; expected 0 or more");
  CHECK(s.said({{"min_p", 2}}) == file + ": \"min_p\" is 2; expected a number from 0 to 1");
  CHECK(s.said({{"repetition_penalty", 0}}) == file + ": \"repetition_penalty\" is 0; expected a number above 0");
  CHECK(s.said({{"temperature", "hot"}}) == file + ": \"temperature\" must be a number, found \"hot\"");
}

}  // namespace sampling_inputs_test
