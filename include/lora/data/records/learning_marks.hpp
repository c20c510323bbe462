#pragma once

#include <optional>
#include <string_view>

#include "lora/io/formats/json_view.hpp"

namespace lora::data::detail {

/// A field of a turn or a record that says whether it is learned.
struct LearningMark {
  std::string_view field;
  bool learned_if;  ///< the value that means learned
};

/// Those of OpenAI, mistral-finetune and axolotl's sharegpt (weight), ms-swift and XTuner (loss), axolotl (train,
/// training), verl (trainable, loss_mask) and torchtune (masked).
constexpr LearningMark learning_marks[] = {{"weight", true},    {"loss", true},       {"train", true},
                                           {"training", true},  {"trainable", true},  {"learn", true},
                                           {"loss_mask", true}, {"loss_scale", true}, {"masked", false}};

/// Marks that can't be taken: of a part of a turn, of tokens, or with a meaning that differs between trainers.
struct RefusedMark {
  std::string_view field;
  std::string_view instead;
};
constexpr RefusedMark refused_marks[] = {
    {"mask", "which hides what it names with some trainers and keeps it with others; expected \"loss\" true or false"},
    {"train_detail", "which marks parts of a turn; expected \"train\" true or false of a whole one"},
    {"completion_mask", "which is not supported; expected labels, -100 where nothing is learned"},
    {"assistant_masks", "which is not supported; expected labels, -100 where nothing is learned"},
};

constexpr bool is_learning_mark(std::string_view field) {
  for (const LearningMark& mark : learning_marks)
    if (mark.field == field) return true;
  for (const RefusedMark& mark : refused_marks)
    if (mark.field == field) return true;
  return false;
}

/// What a turn or a record says, and by which field.
struct Marked {
  std::string_view field;
  bool learned;
};

/// The marks of an object, but those for which `is_other(field)`: a field that the user has given a meaning. Nothing
/// where it has none.
/// Throws   FormatError for a value that means neither, marks that contradict each other, and those that are refused
template <class IsOther>
std::optional<Marked> read_marks(const io::JsonView& object, const IsOther& is_other) {
  for (const RefusedMark& mark : refused_marks)
    if (object.has(mark.field) && !is_other(mark.field)) object.fail("\"", mark.field, "\", ", mark.instead);
  std::optional<Marked> found;
  for (const LearningMark& mark : learning_marks) {
    const io::Json* const value = io::json_find(object.json(), mark.field);
    if (value == nullptr || is_other(mark.field)) continue;
    const double number = value->is_boolean()  ? (value->get<bool>() ? 1 : 0)
                          : value->is_number() ? value->get<double>()
                                               : -1;
    if (number != 0 && number != 1)
      object.fail("\"", mark.field, "\" is ", io::shown(*value), "; expected true, false, 0 or 1");
    const bool learned = (number == 1) == mark.learned_if;
    if (found && found->learned != learned)
      object.fail("\"", found->field, "\" and \"", mark.field, "\" contradict each other: one says learned, one not");
    if (!found) found = Marked{mark.field, learned};
  }
  return found;
}

}  // namespace lora::data::detail
