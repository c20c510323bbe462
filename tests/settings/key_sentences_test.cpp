// The sentence that the help page has of each key, which says what the key does: a word of it that is lost, or another
// key's, misleads whoever reads it.

#include <doctest/doctest.h>

#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

#include "lora/settings/keys.hpp"

namespace key_sentences_test {

using namespace lora::settings;

TEST_CASE("key sentences: each key has its own, word for word") {
  struct Row {
    std::string_view name, sentence;
  };
  const Row rows[] = {
      {"model_name_or_path", "Model folder, .gguf file, or a name in the local Hugging Face cache"},
      {"adapter_name_or_path", "Adapter folder to start from; its file supplies rank, alpha, targets and rsLoRA"},
      {"device",
       "Where to compute: cpu, ascend (an NPU: ascend:2, or a list of which LOCAL_RANK picks), or auto: an NPU where "
       "one can be used, else cpu"},
      {"device_type",
       "Of device ascend: only NPUs of this kind, such as ascend910b3, or family, such as ascend910b; auto: any"},
      {"full_determinism",
       "Of device ascend: operators add up in a fixed order, so that a run repeats its bits; false may be faster"},
      {"dtype",
       "Arithmetic; auto: the model's own, float32 where bfloat16 would be slower. merge: the type to store, auto: as "
       "stored"},
      {"template", "Chat template; auto: the adapter's, else recognised from the model's own"},
      {"enable_thinking",
       "Of qwen3 and smollm3: false puts an empty think block before an answer, in training as in eval, generate and "
       "chat"},
      {"date", "The day that some templates print, YYYY-MM-DD"},
      {"rope_theta", "Base of the rotary embedding's frequencies"},
      {"no_rope_layers",
       "Layers without rotary embedding, added to the model's own: indices and inclusive ranges a..b"},
      {"dataset",
       "File or files of records: .json, .jsonl or .txt, also compressed (.gz, .zst); or objects {path, weight, name, "
       "max_samples}"},
      {"eval_dataset", "File or files to evaluate on while training"},
      {"mix_strategy",
       "Several files: concat: an epoch has each record once; interleave_under, interleave_over: in the shares of "
       "interleave_probs, until the first file has no more, or until each record of every file came"},
      {"interleave_probs", "Share of each file of dataset; they add up to 1"},
      {"val_size", "Part of dataset kept back for evaluation while training: a fraction or a count"},
      {"cutoff_len", "Longest sequence in tokens: what is longer is cut off, or of a text becomes blocks"},
      {"train_on_prompt", "Labels the prompt's tokens too"},
      {"train_on_last_turn_only", "Labels only the last answer of a conversation"},
      {"max_samples", "Reads only this many records, from the beginning (eval: of each file)"},
      {"max_eval_samples", "Evaluates while training on only this many of the records of eval_dataset or val_size"},
      {"skip_empty_answers",
       "Leaves records with an empty answer or text out, and counts them, instead of stopping at the first"},
      {"shuffle", "Draws a new order each epoch; else the file's"},
      {"neftune_noise_alpha",
       "NEFTune: noise on the embeddings while training, uniform to alpha / sqrt(tokens of the sequence x width)"},
      {"text_column", "Field of a plain text record"},
      {"preview", "Prints this many rendered records with the labelled tokens marked, and stops"},
      {"use_curriculum", "Draws each step's records by class, in a mix that changes as curriculum_stages say"},
      {"curriculum_field", "Field of a record that names its class"},
      {"curriculum_stages", "Shares of the classes, up to which share of the steps"},
      {"curriculum_seed", "Fixes the order in which records are drawn"},
      {"finetuning_type",
       "What trains: a LoRA adapter, or the model's own weights, of which final_model is then a whole model"},
      {"trainable",
       "Of a full fine-tuning: regular expressions, found in the names of the tensors that train; the rest is frozen"},
      {"train_from_scratch",
       "Begins with random weights, as transformers draws them: of the model folder its config.json and tokenizer "
       "count"},
      {"model_preset",
       "With train_from_scratch, or to plan, in place of model_name_or_path: a model's shape; tiny to large are small "
       "ones of Qwen3 with its vocabulary, with 2, 6, 24 or 96 million parameters beside the embedding"},
      {"tokenizer_name_or_path", "Of model_preset: the folder that has the tokenizer"},
      {"lora_rank", "Rank of the update"},
      {"lora_alpha", "Scale of the update, times rank"},
      {"lora_dropout", "Share of an adapter's inputs dropped while training"},
      {"lora_target", "Projections that get an adapter"},
      {"additional_target",
       "Trained in full beside the adapter and kept in it, as PEFT's modules_to_save; a tied head trains with the "
       "embedding"},
      {"use_rslora", "Scale alpha / sqrt(rank) instead of alpha / rank"},
      {"loraplus_lr_ratio", "LoRA+: learning rate of lora_B over that of lora_A, such as 16"},
      {"max_tokens_per_micro_batch",
       "Fills micro-batches up to this many tokens, at least one sequence each; the step and its loss stay the same"},
      {"per_device_train_batch_size",
       "Sequences in a micro-batch; with max_tokens_per_micro_batch, which then says what a micro-batch holds, only a "
       "factor of the sequences in a step"},
      {"gradient_accumulation_steps",
       "Micro-batches in a step, which has per_device_train_batch_size x gradient_accumulation_steps sequences"},
      {"step_units",
       "Parts that a step's sequences are dealt into first; micro-batches do not cross them, and their gradients are "
       "added up in a fixed order"},
      {"zero_stage",
       "What ranks share out: 0: nothing, each has all of it; 1: the optimizer's state; 2: gradients too, which leave "
       "layer by layer; 3: on NPUs the frozen layers as well, gathered when they are used"},
      {"ddp_timeout", "Seconds that a rank waits for another before it ends with an error"},
      {"deepspeed",
       "A DeepSpeed configuration file, whose stage, offloads, precision, batch, clipping, optimizer and schedule set "
       "the keys for these"},
      {"per_device_eval_batch_size", "Sequences evaluated together"},
      {"stages",
       "Parts of the run, one after the other, each with what trains, learning rate, schedule and batch of its own"},
      {"learning_rate", "Highest learning rate"},
      {"num_train_epochs", "Passes over the data"},
      {"max_steps", "Steps to train; overrides num_train_epochs unless -1"},
      {"lr_scheduler_type", "How the learning rate falls after the warm-up"},
      {"warmup_steps", "Steps in which the learning rate rises"},
      {"warmup_ratio", "The same as a share of all steps; give one of the two"},
      {"weight_decay", "Decay of matrices; biases and the weights of norms have none"},
      {"adam_beta1", "Decay of AdamW's first moment"},
      {"adam_beta2", "Decay of AdamW's second moment"},
      {"adam_epsilon", "AdamW's epsilon; others are no normal numbers in float32, in which it is added"},
      {"max_grad_norm", "Gradients are scaled down to this norm; 0: never"},
      {"on_non_finite",
       "What a NaN or infinite loss or gradient does: stops the run with a checkpoint from before it, or skips the "
       "step"},
      {"memory_limit_gib", "Checkpoints gradients of as few layers as make the predicted peak of memory fit"},
      {"gradient_checkpointing", "Keeps only each layer's input and computes the rest again: less memory, more time"},
      {"offload",
       "Of a device with memory of its own, what stays on the host: the optimizer's state, whose step the processors "
       "make; the layers' frozen weights, which are streamed; both"},
      {"devices",
       "Processes that train together on each node, on NPUs one for each; on processors they share those of this "
       "machine"},
      {"nodes", "Machines with so many NPUs that train together"},
      {"device_memory_gib", "Memory of the device that the forecast is for"},
      {"host_memory_gib", "Memory of the host that it is for"},
      {"output_dir", "Folder for the results"},
      {"seed", "Fixes every random number"},
      {"logging_steps", "Steps between lines of the log"},
      {"save_steps", "Steps between checkpoints; 0: none on the way"},
      {"save_total_limit", "Keeps only this many of the newest checkpoints"},
      {"eval_steps", "Steps between evaluations"},
      {"load_best_model_at_end", "final_model is the checkpoint with the best evaluation"},
      {"eval_predict",
       "Evaluations while training also generate the answers, greedily, and score them: exact match and ROUGE-L"},
      {"eval_on_start", "Evaluates before the first step too, for comparison: it is never the best"},
      {"metric_for_best_model", "By what one evaluation is better than another: the lowest loss or the highest score"},
      {"early_stopping_patience", "Ends the run, or the stage, after so many evaluations in a row without improvement"},
      {"early_stopping_threshold",
       "By more than this an evaluation must be better than the best to count as improvement"},
      {"resume_from_checkpoint", "Checkpoint to go on from; auto: the newest complete one, or a new start"},
      {"overwrite_output_dir", "Permits an output_dir that holds an earlier result, which is replaced"},
      {"json", "Prints JSON"},
      {"all",
       "Compares sizes of micro-batches, gradient_checkpointing, zero_stage and offload, and names the fastest that "
       "fits"},
      {"full",
       "Also runs every kernel of the device against the processors, and a short training, and writes a report"},
      {"threads", "Threads to compute with"},
      {"profile",
       "Says at the end where time and memory went; writes profile.md, and profile.json for ui.perfetto.dev"},
      {"compare_base", "Also evaluates without the adapter, and shows what it changes"},
      {"compare_with", "Earlier evaluations to compare with: their folders, or evaluation_results.json"},
      {"predict", "Also generates the answers and scores them: exact match and ROUGE-L"},
      {"prompt", "The user's words; or give dataset"},
      {"output_file",
       "File for the answers to dataset, a JSON object per line; of doctor for the report of full; of report for the "
       "page; of export the .gguf file, which must not be there"},
      {"max_new_tokens", "Longest answer in tokens"},
      {"sample",
       "Draws answers as the model's makers advise: temperature, top_p, top_k, min_p and repetition_penalty that are "
       "not given are those of its generation_config.json, else transformers' (temperature 1, top_k 50)"},
      {"temperature", "Of the sampling; 0: greedy, without top_p, top_k, min_p and seed"},
      {"top_p", "Samples from the smallest set of tokens with this probability"},
      {"top_k", "Samples from this many tokens, and those as likely as the last of them; 0: from all"},
      {"min_p", "Samples from tokens that are at least this times as likely as the likeliest"},
      {"repetition_penalty",
       "Divides the positive logits of tokens that are there already by this, and multiplies negative ones"},
      {"num_return_sequences", "Answers to each prompt, each drawn with random numbers of its own"},
      {"stream", "Writes the answer to a prompt as it comes"},
      {"stop", "Texts that end an answer"},
      {"system", "The system prompt"},
      {"max_model_len", "Longest conversation in tokens; past it the oldest turns are left out"},
      {"jsonl", "Reads a JSON object for each message, {\"role\", \"content\"}, and writes one for each answer"},
      {"max_shard_size", "Largest weight file of a whole model, such as 500MB or 5GB"},
      {"outtype",
       "Type of the matrices in the file; auto: bf16 of a model that is stored so, else f16, and of adapter_only as "
       "stored. Vectors are f32; matrices whose rows are not whole blocks of q8_0 are f16"},
      {"adapter_only",
       "Writes the adapter as llama.cpp's LoRA file, to be used with the base's GGUF file, instead of the merged "
       "model"},
      {"text", "One text; or give file"},
      {"file", ".txt: a text per line; .jsonl: {\"text\"} or {\"messages\"} per line"},
      {"add_generation_prompt", "Ends conversations with the opening of an answer"},
      {"runs", "Folders of runs; or words without a key: lora report RUN RUN"},
  };
  REQUIRE(keys().size() == std::size(rows));
  for (std::size_t i = 0; i < keys().size(); ++i) {
    CAPTURE(std::string(rows[i].name));
    CHECK(keys()[i].name == rows[i].name);
    CHECK(keys()[i].help == rows[i].sentence);
  }
}

}  // namespace key_sentences_test
