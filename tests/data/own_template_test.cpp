#include "lora/data/chat/own_template.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lora/data/chat/chat_template.hpp"
#include "lora/data/records/dataset.hpp"
#include "lora/data/records/record_list.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "support/effort.hpp"
#include "support/message_of.hpp"
#include "support/template_fixtures.hpp"

namespace own_template_test {

using namespace lora;
using data::ChatTemplate;
using data::Message;

namespace {

ChatTemplate interpreted(const std::string& text) {
  return ChatTemplate::interpreted(
      text,
      {"<|begin_of_text|>", "</s>", "", {"<|begin_of_text|>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "</s>"}});
}

/// The answers of a rendering, each between ⟦ and ⟧.
std::string marked(const data::Rendering& rendering) {
  std::string text = rendering.text;
  for (auto answer = rendering.answers.rbegin(); answer != rendering.answers.rend(); ++answer) {
    text.insert(answer->end, "⟧");
    text.insert(answer->begin, "⟦");
  }
  return text;
}

/// Renders by the code of the known template and by its text.
void compare(const ChatTemplate& known, const ChatTemplate& own, const std::vector<Message>& messages,
             const data::RenderOptions& options) {
  std::string expected;
  try {
    expected = marked(known.render(messages, options));
  } catch (const FormatError&) {
    return;  // the code refuses what the text would leave out
  }
  data::Rendering rendering = own.render(messages, options);
  if (options.add_generation_prompt) {
    CHECK(rendering.answers.empty());
    rendering.answers = known.render(messages, options).answers;
  }
  CHECK(marked(rendering) == expected);
}

const std::string chatml =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

}  // namespace

TEST_CASE("own_template: every known template's text is rendered as by its code, answers too") {
  const std::vector<io::Json> records = test::template_lines("conversations"), calling = test::template_lines("tools");
  const auto stride = test::effort<std::size_t>(1, 10, "own_template: nine of ten conversations");
  for (const std::string file :
       {"qwen2", "qwen2_5", "qwen2_5_base", "qwen3", "qwen3_v2", "qwen3_instruct_2507", "qwen3_thinking_2507",
        "smollm2", "smollm3", "chatml", "llama3", "llama3_1", "llama3_2", "alpaca", "none"}) {
    CAPTURE(file);
    const std::string name = file == "qwen3_v2" ? "qwen3" : file;
    const ChatTemplate known = ChatTemplate::named(name, "</s>");
    const ChatTemplate own = interpreted(io::read_file(test::template_data(file + ".jinja")));
    CHECK(own.end_of_turn() == known.end_of_turn());
    CHECK(own.prints_date() == known.prints_date());
    CHECK(own.thinks_at_will() == known.thinks_at_will());
    CHECK(own.takes_reasoning() == known.takes_reasoning());
    for (std::size_t i = 0; i < records.size(); i += stride) {
      CAPTURE(i);
      compare(known, own, test::template_messages(records[i], name), test::template_options(records[i]));
    }
    if (!known.calls_tools()) continue;
    data::RecordLists lists;
    for (const io::Json& record : calling) {
      io::Json written = io::json_object({{"messages", record["messages"]}, {"tools", record["tools"]}});
      for (io::Json& turn : written["messages"])
        if (!known.thinks()) turn.erase("reasoning_content");
      lists["calling"].add(written);
    }
    const auto dataset = data::Dataset::open(std::vector<std::string>{"calling"}, {.need_answer = false}, lists);
    for (std::size_t i = 0; i < calling.size(); i += stride) {
      CAPTURE(i);
      const data::Sample sample = dataset[static_cast<Index>(i)];
      auto options = test::template_options(calling[i]);
      options.tools = sample.tools;
      compare(known, own, sample.messages, options);
    }
  }
}

TEST_CASE("own_template: an answer is what follows a generation prompt, past its end-of-turn token") {
  const std::vector<Message> talk = {{"user", "Q"}, {"assistant", "A"}, {"user", "R"}, {"assistant", "B"}};
  const auto render = [&](const std::string& text) { return marked(interpreted(text).render(talk)); };
  CHECK(render(chatml) ==
        "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n⟦A<|im_end|>⟧\n"
        "<|im_start|>user\nR<|im_end|>\n<|im_start|>assistant\n⟦B<|im_end|>⟧\n");
  // Without a generation prompt, and with white space before the token.
  CHECK(
      render(
          "{% for m in messages %}{% if m.role == 'user' %}[{{ m.content }}]{% else %} {{ m.content }} {{ eos_token }}"
          "{% endif %}{% endfor %}") == "[Q]⟦ A </s>⟧[R]⟦ B </s>⟧");
  // What stands behind the last answer alone.
  CHECK(render("{% for m in messages %}{{ m.role }}:{{ m.content }}<|im_end|>{% endfor %}"
               "{% if add_generation_prompt %}assistant:{% else %}</s>{% endif %}") ==
        "user:Q<|im_end|>assistant:⟦A<|im_end|>⟧user:R<|im_end|>assistant:⟦B<|im_end|>⟧</s>");
  // Thoughts that earlier answers lose, and a prompt that they don't begin with.
  CHECK(render("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
               "{% if loop.last and m.role == 'assistant' %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
               "{{ m.content + '<|im_end|>' }}{% endfor %}"
               "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}") ==
        "<|im_start|>user\nQ<|im_end|><|im_start|>assistant\n⟦A<|im_end|>⟧"
        "<|im_start|>user\nR<|im_end|><|im_start|>assistant\n<think>\n⟦\n</think>\n\nB<|im_end|>⟧");
  // Blocks of generation are transparent.
  CHECK(render("{% for m in messages %}{{ m.role + ':' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
               "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{{ eos_token }}{% endfor %}"
               "{% if add_generation_prompt %}assistant:{% endif %}") ==
        "user:Q</s>assistant:⟦A</s>⟧user:R</s>assistant:⟦B</s>⟧");
}

TEST_CASE("own_template: what it is told, and what it asks for") {
  const std::vector<Message> question = {{"user", "Q"}};
  const auto chat = [](const std::string& more) {
    return interpreted("{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}" + more);
  };
  const auto thinking = chat(
      "{% if add_generation_prompt %}a{% if enable_thinking is defined and not enable_thinking %}"
      "<think></think>{% else %}<think>\n{% endif %}{% endif %}");
  CHECK(thinking.thinks());
  CHECK(thinking.thinks_at_will());
  CHECK(thinking.opens_reasoning({}));
  CHECK_FALSE(thinking.opens_reasoning({.enable_thinking = false}));
  CHECK(thinking.opens_reasoning({.enable_thinking = false, .thinking_is_default = true}));
  CHECK_FALSE(thinking.takes_reasoning());
  CHECK_FALSE(thinking.prints_date());
  CHECK_FALSE(thinking.needs_opening());
  const auto dated = chat("{{ date_string }} {{ strftime_now('%Y') }}");
  CHECK(dated.prints_date());
  CHECK(dated.date().size() == 10);
  CHECK(dated.render(question, {.date = "2025-03-09"}).text == "Q<|im_end|> 2025");
  const auto old = chat("{{ date_string or 'long ago' }}");
  CHECK(old.prints_date());
  CHECK(old.date().empty());
  CHECK(old.render(question).text == "Q<|im_end|>long ago");
  CHECK(old.render(question, {.date = "2025-03-09"}).text == "Q<|im_end|>09 Mar 2025");
  CHECK(chat("{{ bos_token ~ eos_token ~ pad_token }}").render(question).text == "Q<|im_end|><|begin_of_text|></s>");
  // One that needs a system prompt is asked with one.
  const auto led = interpreted(
      "{% if messages[0].role != 'system' %}{{ raise_exception('no system') }}{% endif %}"
      "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"
      "{% if add_generation_prompt %}<think>{# </think> #}{% endif %}");
  CHECK(led.opens_reasoning({}));
  const std::vector<Message> talk = {{"user", "Q"}, {"assistant", "A", "because"}};
  CHECK(test::message_of<Error>([&] {
          chat("").render(talk);
        }).ends_with("has no place for reasoning apart from the content (turn 2)"));
  CHECK(marked(
            interpreted(
                "{% for m in messages %}{{ m.reasoning_content }}{{ m.thinking }}{{ m.content }}<|im_end|>{% endfor %}")
                .render(talk)) == "Q<|im_end|>⟦becausebecauseA<|im_end|>⟧");
}

TEST_CASE("own_template: what a next turn begins with is no end of an answer") {
  const std::vector<Message> talk = {{"user", "Q"}, {"assistant", "A"}, {"user", "R"}, {"assistant", "B"}};
  const auto once = interpreted(
      "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}");
  CHECK(test::message_of<Error>([&] { once.render(talk); }) ==
        "where the answer of turn 2 ends in what the template writes can't be told: no special token stands behind it");
  CHECK(marked(once.render(std::span(talk).first(2))) == "<|user|>\nQ\n<|assistant|>\n⟦A\n</s>⟧");
}

TEST_CASE("own_template: what is said by others than the assistant is not left out in silence") {
  const std::string users_alone =
      "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content | trim }} [/INST]"
      "{% elif m.role == 'assistant' %}{{ m.content }}</s>{% endif %}{% endfor %}";
  const ChatTemplate own = interpreted(users_alone);
  const auto refusal = [&](const std::vector<Message>& messages, bool prompt = false) {
    data::RenderOptions options;
    options.add_generation_prompt = prompt;
    return test::message_of<FormatError>([&] { (void)own.render(messages, options); });
  };
  const std::string expected = "; expected records without such turns, or a template that writes them";
  const Message question{"user", "Weather in Oslo?"}, answer{"assistant", "I look it up."};
  CHECK(refusal({{"system", "Be brief."}, question}, true) ==
        "the template leaves out turn 1, which has the role system" + expected);
  CHECK(refusal({question, answer, {"tool", "3 degrees, rain"}, {"assistant", "3 degrees and rain."}}) ==
        "the template leaves out turn 3, which has the role tool" + expected);
  // Whether it stands there for another reason, or is long.
  CHECK(refusal({{"system", "INST"}, question}, true).starts_with("the template leaves out turn 1, "));
  CHECK(refusal({{"system", std::string(100, 'x')}, question}, true).starts_with("the template leaves out"));
  // What is nothing, or is written otherwise, is there.
  CHECK_NOTHROW((void)own.render(std::vector<Message>{{"system", " \n"}, {"user", "  Hi\n"}, answer}, {}));
  const std::string shouts = "{% for m in messages %}{{ m.content | upper }}</s>{% endfor %}";
  CHECK_NOTHROW(
      (void)interpreted(shouts).render(std::vector<Message>{{"user", std::string(100, 'x')}, {"assistant", "Y"}}, {}));
  // It may look at what is said.
  const std::string particular =
      "{% for m in messages %}{% if m.role == 'user' and 'please' not in m.content and m.content != 'A question.' %}"
      "{{ raise_exception('no') }}{% endif %}{{ m.content if m.role == 'assistant' }}</s>{% endfor %}";
  CHECK_NOTHROW((void)interpreted(particular).render(std::vector<Message>{{"user", "please"}, answer}, {}));
}

TEST_CASE("own_template: a template may ask for the case of what is said, as far as that is known") {
  const ChatTemplate own =
      interpreted("{% for m in messages %}{{ m.content }}{{ '!' if 'sorry' in m.content | lower }}</s>{% endfor %}");
  CHECK(marked(own.render(std::vector<Message>{{"user", "你好"}, {"assistant", "Sorry“。"}}, {})) ==
        "你好</s>⟦Sorry“。!</s>⟧");
}

TEST_CASE("own_template: thoughts go where they are not wanted, and are not lost where they are") {
  const std::vector<Message> talk = {{"user", "Q"}, {"assistant", "<think>\nso\n</think>\n\nA"}};
  const auto qwen3 = interpreted(io::read_file(test::template_data("qwen3.jinja")));
  const data::RenderOptions without{.enable_thinking = false};
  CHECK(
      marked(qwen3.render(qwen3.turns_of(talk, without), without)).ends_with("<think>\n\n</think>\n\n⟦A<|im_end|>⟧\n"));
  CHECK(marked(qwen3.render(qwen3.turns_of(talk, {}), {})).ends_with("⟦<think>\nso\n</think>\n\nA<|im_end|>⟧\n"));
  const auto forgetful =
      interpreted("{% for m in messages %}{{ m.content.split('</think>')[-1] }}<|im_end|>{% endfor %}");
  CHECK(test::message_of<Error>([&] { forgetful.render(talk); }) ==
        "the template leaves out the reasoning of the last turn, which then would not be learned; expected answers "
        "without "
        "it, or a template that keeps it");
  const std::vector<Message> earlier = {talk[0], talk[1], {"user", "R"}, {"assistant", "B"}};
  CHECK(forgetful.render(earlier).answers.size() == 2);
}

TEST_CASE("own_template: what an assistant says beside calls, and each of its calls, is not left out in silence") {
  const std::string begin = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.tool_calls %}";
  const std::string end = "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}";
  const ChatTemplate first = interpreted(begin + "{{ m.tool_calls[0].function.name }}" + end);
  const ChatTemplate all =
      interpreted(begin + "{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }};{% endfor %}" + end);
  const data::ToolCall look{"look", io::Json::object()}, find{"find", io::Json::object()};
  std::vector<Message> talk = {{"user", "Q"}, {"assistant", ""}};
  talk[1].tool_calls = {look};
  CHECK(marked(first.render(talk)).ends_with("look<|im_end|>⟧\n"));
  talk[1].content = "A moment, please: it takes a while to look.";
  for (const std::string& content : {std::string("Wait."), talk[1].content}) {
    talk[1].content = content;
    CHECK(test::message_of<Error>([&] { first.render(talk); }) ==
          "the template leaves out what turn 2 says beside its calls; expected calls without a content, or a template "
          "that writes both");
    CHECK(marked(all.render(talk)).ends_with(content + "look;<|im_end|>⟧\n"));
  }
  talk[1].content.clear();
  talk[1].tool_calls = {look, find};
  CHECK(test::message_of<Error>([&] { first.render(talk); }) ==
        "the template leaves out call 2 of turn 2; expected turns of as many calls as it writes, or another template");
  CHECK(marked(all.render(talk)).ends_with("look;find;<|im_end|>⟧\n"));
}

TEST_CASE("own_template: a template that writes its tools wants some, with or without a system prompt") {
  const std::string tools = "{% for tool in tools %}{{ tool.function.name }}|{% endfor %}";
  const std::vector<io::Json> look = {io::json_object({{"function", io::json_object({{"name", "look"}})}})};
  data::RenderOptions options;
  options.tools = look;
  const std::vector<Message> talk = {{"user", "Q"}, {"assistant", "A"}};
  const ChatTemplate own = interpreted(tools + chatml);
  CHECK(own.end_of_turn() == "<|im_end|>");
  CHECK(marked(own.render(talk, options)) ==
        "look|<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n⟦A<|im_end|>⟧\n");
  CHECK(test::message_of<Error>([&] { own.render(talk); }) ==
        "the model's chat template can't write a conversation without tools; expected some, or a choice by the key "
        "template");
  const ChatTemplate both =
      interpreted("{% if messages[0].role != 'system' %}{{ raise_exception('none') }}{% endif %}" + tools + chatml);
  const std::vector<Message> said = {{"system", "S"}, {"user", "Q"}, {"assistant", "A"}};
  CHECK(marked(both.render(said, options)).ends_with("⟦A<|im_end|>⟧\n"));
  // One that needs none is not told of any, and one that nothing helps is refused as before.
  CHECK(interpreted("{% if tools %}{{ raise_exception('tools') }}{% endif %}" + chatml).render(talk).answers.size() ==
        1);
  CHECK(test::message_of<Error>([&] {
          interpreted(tools + "{{ raise_exception('never') }}");
        }).ends_with("the template refuses this: never"));
}

TEST_CASE("own_template: what ends nowhere, or is left out, is refused by name") {
  const std::vector<Message> talk = {{"user", "Q"}, {"assistant", "A"}};
  const ChatTemplate endless = interpreted("{% for m in messages %}{{ m.role + ':' + m.content + '\n' }}{% endfor %}");
  CHECK(endless.end_of_turn().empty());
  CHECK(
      test::message_of<Error>([&] { endless.render(talk); }) ==
      "the model's chat template writes no special token behind an answer, by which a model could learn where to stop; "
      "expected one, or a choice by the key template");
  CHECK(endless.render(talk, {.add_generation_prompt = true}).text == "user:Q\nassistant:A\n");
  CHECK(test::message_of<Error>([] { interpreted("{{ messages[0].content }}"); }) ==
        "the model's chat template leaves out what the assistant says");
  CHECK(test::message_of<Error>([] { interpreted("{{ unk_token }}"); }) ==
        "the model's chat template writes unk_token, which is not supported");
  CHECK(test::message_of<Error>([] { interpreted("a\n {% include 'b' %}"); }) ==
        "the model's chat template:2:5: found the block include; supported are set, if, for, macro, generation, break, "
        "continue and raw");
  const ChatTemplate first_only = interpreted(
      "{% for m in messages if m.role == 'user' or loop is undefined %}{{ m.content }}{% endfor %}{{ "
      "messages[-1].content }}"
      "<|im_end|>");
  CHECK(test::message_of<Error>([&] {
          first_only.render(std::vector<Message>{{"user", "Q"}, {"assistant", "A"}, {"user", "R"}});
        }) != "nothing was thrown");
  const ChatTemplate plain = interpreted(chatml);
  CHECK(plain.name().starts_with("own_"));
  CHECK(plain.name() == interpreted(chatml).name());
  CHECK(plain.name() != interpreted(chatml + " ").name());
  std::vector<io::Json> tools = {io::json_object({{"name", "look"}})};
  data::RenderOptions options;
  options.tools = tools;
  CHECK(test::message_of<Error>([&] { plain.render(talk, options); }) ==
        std::string("template ") + std::string(plain.name()) + " has no place for tools");
}

}  // namespace own_template_test
