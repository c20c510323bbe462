// Conversations over several turns: against transformers' answers, by what each turn has the model read, and where the
// context ends.

#include "lora/decode/conversation.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lora/inputs/model_files.hpp"
#include "lora/instantiate.hpp"
#include "support/message_of.hpp"

namespace conversation_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;

/// A model that was taught one conversation (tests/scripts/chat_turns.py).
struct Subject {
  io::Path folder = io::Path(LORA_FIXTURES) / "chat";
  io::Json turns = io::read_json(folder / "turns.json");
  D dev{1};
  model::Source source = model::Source::open(folder);
  model::Decoder<D, float> decoder{dev, source};
  tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::from_folder(folder);
  data::Encoder encoder;
  decode::ConversationOptions options;

  explicit Subject(const char* chat = "qwen3", data::RenderOptions render = {})
      : encoder(&tokenizer, data::choose_template(chat, tokenizer), {.render = render, .vocab_size = 260}) {
    options.generate.stop_ids = {257};
    options.generate.max_new_tokens = 48;
  }
  decode::Conversation<D, float> begin() {
    decode::Conversation<D, float> talk(dev, decoder, tokenizer, encoder, options);
    talk.transcript().set_system(turns.at("system").get<std::string>());
    return talk;
  }
  std::string words(std::size_t i) const { return turns.at("turns").at(i).at("user").get<std::string>(); }
};

decode::Answer ask(decode::Conversation<D, float>& talk, const std::string& words) {
  talk.transcript().add({"user", words});
  return talk.answer({});
}

}  // namespace

TEST_CASE("conversation: greedy answers over three turns are transformers', and a turn costs its own tokens") {
  Subject s;
  auto talk = s.begin();
  Index cached = 0;  // tokens at the begin of a prompt that were read before: of the last one, without its open answer
  for (const io::Json& turn : s.turns.at("turns")) {
    talk.transcript().add({"user", turn.at("user").get<std::string>()});
    decode::Words heard;
    const auto answer = talk.answer([&](const decode::Words& words) {
      heard.reasoning += words.reasoning;
      heard.content += words.content;
    });
    CAPTURE(answer.message.content);
    CHECK(answer.end == decode::Answer::End::complete);
    CHECK(answer.message.content == turn.at("content").get<std::string>());
    CHECK(answer.message.reasoning.has_value() == turn.contains("reasoning_content"));
    if (answer.message.reasoning) CHECK(*answer.message.reasoning == turn.at("reasoning_content").get<std::string>());
    CHECK(heard.content == answer.message.content);
    CHECK(heard.reasoning == answer.message.reasoning.value_or(""));
    CHECK(answer.tokens == turn.at("tokens").get<Index>());
    // The next prompt leaves the reasoning out, so that of the answer before it nothing is the same.
    const auto prompt = turn.at("prompt").get<Index>();
    CHECK(answer.processed == prompt - cached + answer.tokens);
    CHECK(answer.seconds > 0);
    cached = prompt;
  }
  CHECK(talk.transcript().turns() == 6);
  CHECK(talk.transcript().messages().front().content == "Be kind.");
}

TEST_CASE("conversation: of an answer without reasoning only its end is read for the next turn") {
  Subject s("chatml");
  auto talk = s.begin();
  const auto first = ask(talk, "Hi");
  const auto prompt_of = [&](std::vector<data::Message> messages) {
    data::Sample sample;
    sample.messages = std::move(messages);
    return std::ssize(s.encoder.prompt(sample));
  };
  const std::vector<data::Message> begin{{"system", "Be kind."}, {"user", "Hi"}};
  const Index one = prompt_of(begin);
  CHECK(first.processed >= one + first.tokens - 1);
  // What differs is the rest of the prompt, if the answer's text gives its tokens again.
  auto all = begin;
  all.push_back({"assistant", first.message.content});
  all.push_back({"user", "2+2?"});
  const auto written = s.tokenizer.encode(first.message.content).ids;
  const auto second = ask(talk, "2+2?");
  if (std::ssize(written) == first.tokens)
    CHECK(second.processed - second.tokens <= prompt_of(all) - one - first.tokens + 2);
  // The same question again is read only where its answer begins.
  talk.transcript().take_back();
  const auto again = talk.answer({});
  CHECK(again.message.content == second.message.content);
  CHECK(again.processed <= again.tokens + 1);
}

TEST_CASE(
    "conversation: answers are cut at max_new_tokens, a stop text, or where they are stopped, and go on from there") {
  Subject s;
  s.options.generate.max_new_tokens = 5;
  auto few = s.begin();
  const auto cut = ask(few, "Hi");
  CHECK(cut.tokens == 5);
  CHECK(cut.end == decode::Answer::End::max_new_tokens);
  s.options.generate.max_new_tokens = 0;
  s.options.stops = {"lo!"};
  auto ended = s.begin();
  const auto hel = ask(ended, "Hi");
  CHECK(hel.message.content == "Hel");
  CHECK(hel.end == decode::Answer::End::complete);
  s.options.stops.clear();
  std::atomic<int> stop = 0;
  s.options.generate.stop = &stop;
  auto talk = s.begin();
  talk.transcript().add({"user", "Hi"});
  const auto stopped = talk.answer([&](const decode::Words& words) {
    if (words.content.find('l') != std::string::npos) stop = 2;
  });
  CHECK(stopped.end == decode::Answer::End::stopped);
  CHECK(stopped.message.content == "Hel");
  CHECK(talk.transcript().messages().back().content == "Hel");
  stop = 0;
  CHECK(ask(talk, "2+2?").tokens > 0);
  stop = 2;
  const auto none = ask(talk, "Bye");
  CHECK(none.tokens == 0);
  CHECK(none.processed == 0);
}

TEST_CASE("conversation: where the context is full the oldest turns are left out, and the system prompt stays") {
  Subject s;
  s.options.longest = 150;  // without the first question alone there would be room
  auto talk = s.begin();
  CHECK(ask(talk, "Hi").dropped == 0);
  CHECK(ask(talk, "2+2?").dropped == 0);  // 77 tokens, and 48 for an answer
  const auto third = ask(talk, "Bye");    // 109 would not do
  CHECK(third.dropped == 2);
  CHECK(third.newly == 2);
  const auto messages = talk.transcript().messages();
  CHECK(messages.size() == 7);  // they are still told of
  const auto fourth = ask(talk, "Hi");
  CHECK(fourth.dropped >= 2);
  CHECK(fourth.newly == fourth.dropped - 2);

  // A question that left no room for those before it is taken back: these are seen again.
  decode::Transcript taken_back(s.encoder, 150);
  taken_back.set_system("Be kind.");
  for (const char* role : {"user", "assistant", "user"}) taken_back.add({role, "Hi"});
  CHECK(taken_back.prompt(1).dropped == 0);
  taken_back.take_back();
  taken_back.add({"user", std::string(100, 'x')});
  CHECK(taken_back.prompt(1).dropped == 2);
  taken_back.take_back();
  taken_back.add({"user", "Hi"});
  CHECK(taken_back.prompt(1).dropped == 0);

  s.options.longest = 60;
  s.options.generate.max_new_tokens = 0;
  auto narrow = s.begin();
  const auto answer = ask(narrow, "Hi");
  CHECK(answer.end == decode::Answer::End::context);
  CHECK(answer.tokens == 60 - 39);
  narrow.transcript().add({"user", std::string(100, 'x')});
  CHECK(message_of<FormatError>([&] { (void)narrow.answer({}); }) ==
        "the message is too long: with what the template writes around it, it has 137 tokens, but all of the "
        "conversation may have 60, its answer included");
  narrow.transcript().take_back();
  CHECK(ask(narrow, "Hi").tokens > 0);
}

TEST_CASE("conversation: answers are drawn by the seed, each by numbers of its own; clearing begins again") {
  Subject s;
  s.options.generate.sampling.temperature = 3;
  s.options.generate.max_new_tokens = 12;
  auto one = s.begin(), two = s.begin();
  const auto first = ask(one, "Hi").message.content;
  CHECK(first == ask(two, "Hi").message.content);
  one.transcript().take_back();
  CHECK(one.answer({}).message.content != first);
  one.transcript().clear();
  CHECK(one.transcript().turns() == 0);
  CHECK(one.transcript().system() == "Be kind.");
  s.options.generate.sampling.repetition_penalty = 1e6;
  s.options.generate.sampling.temperature = 0;
  auto varied = s.begin();
  const auto letters = ask(varied, "q").message;
  std::string text = letters.reasoning.value_or("") + letters.content;
  std::sort(text.begin(), text.end());
  CHECK(std::adjacent_find(text.begin(), text.end()) == text.end());
}

}  // namespace conversation_test
