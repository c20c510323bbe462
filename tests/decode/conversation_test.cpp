// Conversations over several turns: against transformers' answers, by what each turn has the model read, and where the
// context ends.

#include "lora/decode/conversation.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lora/inputs/model_files.hpp"
#include "lora/instantiate.hpp"
#include "support/message_of.hpp"
#include "support/talking_model.hpp"
#include "support/temp_folder.hpp"

namespace conversation_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;

/// A model that was taught one conversation (tests/make/chat_turns.py).
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
      CHECK_FALSE((words.reasoning.empty() && words.content.empty()));
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
  REQUIRE(std::ssize(s.tokenizer.encode(first.message.content).ids) == first.tokens);
  const auto second = ask(talk, "2+2?");
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
  bool stop = false;
  s.options.generate.stopped = [&] { return stop; };
  auto talk = s.begin();
  talk.transcript().add({"user", "Hi"});
  const auto stopped = talk.answer([&](const decode::Words& words) {
    if (words.content.find('l') != std::string::npos) stop = true;
  });
  CHECK(stopped.end == decode::Answer::End::stopped);
  CHECK(stopped.message.content == "Hel");
  CHECK(talk.transcript().messages().back().content == "Hel");
  stop = false;
  CHECK(ask(talk, "2+2?").tokens > 0);
  stop = true;
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

TEST_CASE("conversation: a first answer is what generate makes of the prompt, however long, drawn and penalized") {
  for (const std::size_t size : {1u, 700u}) {
    CAPTURE(size);
    Subject s("chatml");
    auto& how = s.options.generate;
    how.max_new_tokens = 12;
    how.sampling.temperature = 2;
    how.sampling.repetition_penalty = 1.5;
    how.sampling.seed = 7;
    auto talk = s.begin();
    const std::string words(size, 'q');
    const auto answer = ask(talk, words);
    data::Sample sample;
    sample.messages = {{"system", "Be kind."}, {"user", words}};
    const std::vector<Tokens> prompts{s.encoder.prompt(sample)};
    const Tokens ids = decode::generate(s.dev, s.decoder, std::span<const Tokens>(prompts), how).at(0);
    tokenizer::TextStream stream(s.tokenizer);
    std::string expected;
    for (const std::int32_t id : ids) expected += stream.add(id);
    CHECK(answer.message.content == expected + stream.finish());
    CHECK(answer.message.role == "assistant");
    CHECK(answer.tokens == std::ssize(ids));
    const bool cut = answer.end == decode::Answer::End::max_new_tokens;  // then nobody reads the last token
    CHECK(answer.processed == std::ssize(prompts[0]) + answer.tokens - (cut ? 1 : 0));
  }
}

TEST_CASE("conversation: room is kept for an answer, for one without a limit a quarter, else half of all at most") {
  Subject s;
  const auto dropped = [&](Index longest, Index most) {
    s.options.longest = longest;
    s.options.generate.max_new_tokens = most;
    auto talk = s.begin();
    CHECK(ask(talk, "Hi").end == decode::Answer::End::complete);
    return ask(talk, "2+2?").dropped;
  };
  REQUIRE(s.turns.at("turns").at(1).at("prompt").get<Index>() == 77);
  CHECK(dropped(77 + 31, 31) == 0);
  CHECK(dropped(77 + 30, 31) == 2);
  CHECK(dropped(153, 1000) == 0);  // 77 and 76
  CHECK(dropped(152, 1000) == 2);
  CHECK(dropped(102, 0) == 0);  // 77 and 25
  CHECK(dropped(101, 0) == 2);
}

TEST_CASE(
    "conversation: reasoning is told apart, also where the prompt has begun it or a template has no place for it") {
  const Subject taught;
  const std::string reasoning = "A greeting.",
                    content = taught.turns.at("turns").at(0).at("content").get<std::string>();
  // SmolLM3's template then writes what the model was taught with.
  Subject joined("smollm3");
  auto talk = joined.begin();
  talk.transcript().set_system("Be kind./system_override");
  const auto answer = ask(talk, "Hi");
  CHECK(answer.message.reasoning == reasoning);
  CHECK(answer.message.content == content);
  const auto turn = talk.transcript().messages().back();
  CHECK(turn.role == "assistant");
  CHECK(turn.content == "<think>\n" + reasoning + "\n</think>\n\n" + content);
  CHECK_FALSE(turn.reasoning);

  Subject begun("qwen3_thinking_2507");
  auto other = begun.begin();
  const auto second = ask(other, "Hi");
  CHECK(second.message.reasoning == reasoning);
  CHECK(second.message.content == content);
  CHECK(other.transcript().messages().back().reasoning == reasoning);
  CHECK(other.transcript().messages().back().content == content);
  begun.options.stops = {"A"};  // before anything was thought
  auto ended = begun.begin();
  const auto nothing = ask(ended, "Hi");
  CHECK(nothing.message.reasoning == "");
  CHECK(nothing.message.content == "");
}

TEST_CASE("conversation: ids that are no tokens are never chosen, and logits that are no numbers are an error") {
  const TempFolder temp;
  write_talking_model(temp.path());
  D dev(1);
  model::Decoder<D, float> decoder(dev, model::Source::open(temp.path()));
  const auto tokenizer = tokenizer::Tokenizer::from_folder(temp.path());
  const data::Encoder encoder(&tokenizer, data::choose_template("chatml", tokenizer), {});
  decode::ConversationOptions options;
  options.generate.max_new_tokens = 12;
  decode::Conversation<D, float> talk(dev, decoder, tokenizer, encoder, options);
  CHECK(ask(talk, "Hi").message.content == Listener(temp.path()).answer("Hi", 12));

  decoder.attach(dev, model::AdapterConfig{});
  fill_adapter(dev, decoder, std::numeric_limits<double>::infinity());
  decode::Conversation<D, float> broken(dev, decoder, tokenizer, encoder, options);
  CHECK(message_of<NonFiniteError>([&] { ask(broken, "Hi"); }) ==
        concat("the logits of token ", byte_tokens(chatml_question("Hi")).size(),
               " of the conversation are not all finite numbers"));
}

}  // namespace conversation_test
