// train.cpp: trains a GPT on characters, with forward and backward passes in plain C++, alone, data-parallel or sharded.
//
//     build/examples/train/train docs/guide                                      one process
//     build/tools/weft run -n 2 build/examples/train/train --mode ddp docs/guide two ranks
//     build/tools/weft run -n 2 build/examples/train/train --mode fsdp docs/guide
//
// The batch of a step is the same for any number of ranks, so all modes learn the same.
#include "hooks.hpp"
#include "local.hpp"
#include "saved.hpp"
#include "sharded.hpp"
#include "text.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>

namespace train {
namespace {

struct Options {
    std::string mode = "single", storage = "f32", hook = "average", gather = "exact", reduce = "exact",
                optimizer = "adamw", offload, checkpoint;
    int steps = 300, batch = 16, accumulate = 1, virtual_ranks = 1, report = 50, period = 10, host_ranks = 0;
    int save_period = 100, keep = 0, fail_at = 1 << 30;
    std::uint64_t seed = 1;
    float rate = 6e-3f;
    bool deterministic = false, resume = false;
    Shape shape{3, 96, 4, 64, vocabulary};
    std::vector<std::string> texts;
};

const char* const usage =
    "usage: train [options] TEXT...   a TEXT is a file, or a folder with *.md\n"
    "  --mode single             one process without communication\n"
    "  --mode ddp|zero1|zero2|zero3|fsdp|hsdp  ranks (weft run): data-parallel or sharded; hsdp has two copies\n"
    "  --mode local|diloco       ranks that exchange parameters every --period N steps\n"
    "  --storage f32|bf16        of parameters and gradients; arithmetic is float32\n"
    "  --offload nvme:FOLDER     zero1 to hsdp: moments, and main values of bf16, in files in a folder on a disk\n"
    "  --hook average|fp16|bf16|fp8|int8|powersgd|topk|onebit|onebit-lamb|zeros  how ddp sends gradients; zeros learns "
    "nothing\n"
    "  --optimizer adamw|lamb    lamb for single and ddp; --hook onebit-lamb needs it\n"
    "  --gather exact|int8       how zero1 to hsdp gather parameters\n"
    "  --reduce exact|int8|int4  how they reduce gradients\n"
    "  --host-ranks N            how many ranks keep each unit together after the forward pass, such as those of a "
    "host\n"
    "  --steps N --batch N --rate R --seed N   steps; sequences of a step, over all ranks; learning rate\n"
    "  --accumulate K            each rank computes its part of the batch in K micro-batches\n"
    "  --deterministic           sums in rank order\n"
    "  --virtual-ranks N         single: adds up N parts of the batch as N ranks would\n"
    "  --layers N --width N --heads N --context N   the model\n"
    "  --report N                prints the loss after so many steps\n"
    "  --checkpoint FOLDER --checkpoint-every N   saves the state after so many steps\n"
    "  --keep N                  removes all but the N newest checkpoints; without it all stay\n"
    "  --resume                  continues from the newest complete checkpoint in FOLDER, if there is one\n"
    "  --fail-at N               the last rank kills itself after N steps, unless the training was resumed\n";

[[noreturn]] void refuse(const std::string& reason) { throw std::runtime_error(reason + "\n" + usage); }

bool is_local(const std::string& mode) { return mode == "local" || mode == "diloco"; }

Options parsed(int count, char** words) {
    Options options;
    const std::map<std::string, std::string*> names = {
        {"--mode", &options.mode},       {"--storage", &options.storage},      {"--hook", &options.hook},
        {"--gather", &options.gather},   {"--reduce", &options.reduce},        {"--optimizer", &options.optimizer},
        {"--offload", &options.offload}, {"--checkpoint", &options.checkpoint}};
    const std::map<std::string, int*> numbers = {
        {"--steps", &options.steps},           {"--batch", &options.batch},
        {"--accumulate", &options.accumulate}, {"--virtual-ranks", &options.virtual_ranks},
        {"--report", &options.report},         {"--period", &options.period},
        {"--host-ranks", &options.host_ranks}, {"--layers", &options.shape.layers},
        {"--width", &options.shape.width},     {"--heads", &options.shape.heads},
        {"--context", &options.shape.context}, {"--checkpoint-every", &options.save_period},
        {"--fail-at", &options.fail_at},       {"--keep", &options.keep}};
    for (int i = 1; i < count; ++i) {
        const std::string word = words[i];
        if (word == "--deterministic") {
            options.deterministic = true;
        } else if (word == "--resume") {
            options.resume = true;
        } else if (word.rfind("--", 0) != 0) {
            options.texts.push_back(word);
        } else if (++i == count) {
            refuse(word + " is unknown, or has no value");
        } else if (const auto name = names.find(word); name != names.end()) {
            *name->second = words[i];
        } else if (word == "--rate") {
            options.rate = std::strtof(words[i], nullptr);
        } else if (word == "--seed") {
            options.seed = std::strtoull(words[i], nullptr, 10);
        } else if (const auto number = numbers.find(word); number != numbers.end()) {
            *number->second = std::atoi(words[i]);
            if (*number->second < 1) refuse(word + " is a number from 1");
        } else {
            refuse(word + " is unknown");
        }
    }
    if (options.steps % options.period != 0 && is_local(options.mode)) refuse("--steps is a multiple of --period");
    if (options.storage != "f32" && is_local(options.mode)) refuse("--storage f32 is for --mode local and diloco");
    if (options.texts.empty()) refuse("name a text");
    if (options.mode != "ddp" && options.hook != "average") refuse("--hook is for --mode ddp");
    const bool sharded = options.mode != "ddp" && options.mode != "single" && !is_local(options.mode);
    if (options.optimizer != "adamw" && (options.optimizer != "lamb" || sharded || is_local(options.mode)))
        refuse("--optimizer is adamw, or lamb for --mode single and ddp");
    if ((options.hook == "onebit-lamb" && options.optimizer != "lamb") ||
        (options.hook == "onebit" && options.optimizer != "adamw"))
        refuse("--hook onebit is for --optimizer adamw, and onebit-lamb for lamb");
    if (!sharded && (options.gather != "exact" || options.reduce != "exact" || options.host_ranks > 0))
        refuse("--gather, --reduce and --host-ranks are for --mode zero1 to hsdp");
    if (!options.offload.empty()) {
        const std::string kind = "nvme:";
        if (options.offload.rfind(kind, 0) != 0 || options.offload == kind) refuse("--offload is nvme:FOLDER");
        if (!sharded) refuse("--offload is for --mode zero1 to hsdp");
        options.offload.erase(0, kind.size());
    }
    if (options.resume && options.checkpoint.empty()) refuse("--resume needs --checkpoint FOLDER");
    if (options.keep > 0 && options.checkpoint.empty()) refuse("--keep needs --checkpoint FOLDER");
    if (options.shape.width % options.shape.heads != 0) refuse("--width is a multiple of --heads");
    return options;
}

int bits_of(const std::string& name) {
    if (name == "exact") return 0;
    if (name == "int8") return 8;
    if (name == "int4") return 4;
    refuse(name + " is unknown");
}

weftTrainShardConfig_t sharding_of(const Options& options, int ranks) {
    const std::string& mode = options.mode;
    weftTrainShardConfig_t config = weft::train::shard_config();
    if (mode == "zero1") {
        config.stage = weftTrainShardOptimizer;
    } else if (mode == "zero2") {
        config.stage = weftTrainShardGradients;
    } else if (mode == "fsdp" || mode == "hsdp") {
        config.sharding = weftTrainShardRows;
    } else if (mode != "zero3") {
        refuse("--mode " + mode + " is unknown");
    }
    if (mode == "hsdp") {
        if (ranks % 2 != 0) refuse("--mode hsdp needs an even number of ranks, for two copies of the model");
        config.shardRanks = ranks / 2;
    }
    config.gatherBits = bits_of(options.gather);
    config.reduceBits = bits_of(options.reduce);
    return config;
}

// A linear warm-up, then a cosine down to a tenth.
float rate_at(const Options& options, int step) {
    const float warm = std::min(1.0f, float(step + 1) / (0.05f * float(options.steps)));
    const float rest = 0.55f + 0.45f * std::cos(3.14159265f * float(step) / float(options.steps));
    return options.rate * warm * rest;
}

// The part of each batch that this process computes. Alone it computes the parts of all virtual ranks in their order.
struct Share {
    int ranks, first, count;
};

template <class Stored>
class Training {
  public:
    Training(const Options& options, const Text& text, Model<Stored>& model, Share share, bool prints,
             AdamW<Stored> optimizer)
        : options_(options),
          text_(text),
          model_(model),
          share_(share),
          prints_(prints),
          gpt_(options.shape),
          optimizer_(std::move(optimizer)) {}

    // Saves to `saved`, or continues from there. momentum_from: as for run().
    void keep_in(Saved& saved, int momentum_from) {
        saved_ = &saved;
        if (options_.resume) first_step_ = saved.resume(model_, optimizer_, place(0), momentum_from);
        if (prints_ && first_step_ > 0) std::printf("resumed after step %d\n", first_step_);
    }

    // Gradients are momentum from step `momentum_from` on: 1-bit Adam.
    void run(int momentum_from = 1 << 30) {
        using Clock = std::chrono::steady_clock;
        auto before = Clock::now();
        int timed = 0;
        for (int step = first_step_; step < options_.steps; ++step, ++timed) {
            const double loss = gradients(step);
            optimizer_.step(model_.pieces(), rate_at(options_, step), step >= momentum_from);
            model_.stepped();
            if (saved_ && (step + 1) % options_.save_period == 0) saved_->save(model_, optimizer_, place(step + 1));
            if (step + 1 == options_.fail_at && first_step_ == 0 && share_.first + share_.count == share_.ranks)
                std::raise(SIGKILL);
            if ((step + 1) % options_.report != 0 && step + 1 != options_.steps) continue;
            const double mean = model_.mean(loss);
            const double ms = std::chrono::duration<double, std::milli>(Clock::now() - before).count() / (timed + 1);
            if (prints_) std::printf("step %d loss %.4f, %.1f ms a step\n", step + 1, mean, ms);
            std::fflush(stdout);
            before = Clock::now();
            timed = -1;
        }
        if (saved_) saved_->wait();
        model_.begin_evaluation();
        const double loss = validation();
        const unsigned long long weights = digest();
        model_.finish_evaluation();
        const double part = double(weights >> 32);
        if (model_.mean(part) != part) throw std::runtime_error("the ranks have different weights");
        if (prints_ && !model_.memory().empty()) std::printf("memory: %s\n", model_.memory().c_str());
        if (prints_) std::printf("validation loss %.4f, weights %016llx\n", loss, weights);
    }

  private:
    Place place(int steps) const {
        return {std::uint64_t(steps), options_.seed, std::uint64_t(options_.batch), text_.size()};
    }

    // One step's gradients of all parts; returns the mean loss of this process.
    double gradients(int step) {
        const Average<double> average(share_.count);
        double sum = 0;
        const int rows = options_.batch / share_.ranks, micro_rows = rows / options_.accumulate;
        for (int part = share_.first; part < share_.first + share_.count; ++part) {
            double loss = 0;
            for (int i = 0; i < options_.accumulate; ++i) {
                const MicroBatch micro{i == 0, i + 1 == options_.accumulate};
                const Batch batch = text_.training(options_.seed, step, part * rows + i * micro_rows, micro_rows);
                model_.begin(micro);
                loss += gpt_.forward(model_, micro_rows, batch.tokens.data(), batch.targets.data(),
                                     1 / float(options_.accumulate));
                gpt_.backward(model_, batch.tokens.data());
                model_.finish(micro);
            }
            sum += average.part(loss / options_.accumulate);
        }
        return average.whole(sum);
    }

    double validation() {
        const int sequences = 128, rows = 8;
        double sum = 0;
        for (int i = 0; i < sequences; i += rows) {
            const Batch batch = text_.validation(i, rows, sequences);
            sum += gpt_.forward(model_, rows, batch.tokens.data(), batch.targets.data());
        }
        return sum * rows / sequences;
    }

    // A hash of all values (FNV-1a): equal numbers mean equal bits.
    unsigned long long digest() {
        unsigned long long hash = 0xcbf29ce484222325;
        for (int unit = 0; unit < model_.units(); ++unit) {
            model_.before(unit, Pass::forward);
            for (int i = first_of_unit(unit); i < model_.end_of(unit); ++i) {
                const auto* bytes = reinterpret_cast<const unsigned char*>(model_.values(i));
                for (std::size_t k = 0; k < model_.parameters()[i].count() * sizeof(float); ++k)
                    hash = (hash ^ bytes[k]) * 0x100000001b3;
            }
            model_.after(unit, Pass::forward);
        }
        return hash;
    }

    const Options& options_;
    const Text& text_;
    Model<Stored>& model_;
    Share share_;
    bool prints_;
    Gpt<float> gpt_;
    AdamW<Stored> optimizer_;
    Saved* saved_ = nullptr;
    int first_step_ = 0;
};

void check_parts(const Options& options, int ranks) {
    if (options.batch % (ranks * options.accumulate) != 0)
        refuse("--batch is a multiple of the ranks times --accumulate");
}

template <class Stored>
AdamW<Stored> optimizer_for(const Options& options, weftTrainCompressor_t of_lamb = nullptr) {
    return options.optimizer == "lamb" ? AdamW<Stored>(of_lamb) : AdamW<Stored>();
}

constexpr int never = 1 << 30;

template <class Stored>
void run_saved(const Options& options, Training<Stored>& training, weft::Communicator& comm, Hook* hook = nullptr) {
    const int momentum_from = hook ? hook->momentum_from() : never;
    if (options.checkpoint.empty()) return training.run(momentum_from);
    Saved saved(comm, options.checkpoint, options.keep);
    if (hook) saved.set_hook(*hook);
    training.keep_in(saved, momentum_from);
    training.run(momentum_from);
}

template <class Stored>
void trained_alone(const Options& options, const Text& text) {
    check_parts(options, options.virtual_ranks);
    Alone<Stored> model(options.shape, options.seed, options.virtual_ranks);
    Training<Stored> training(options, text, model, {options.virtual_ranks, 0, options.virtual_ranks}, true,
                              optimizer_for<Stored>(options));
    if (options.checkpoint.empty()) return training.run();
    weft::Communicator alone(1, weft::make_unique_id(), 0);  // for the checkpoints
    run_saved(options, training, alone);
}

template <class Stored>
void trained_together(const Options& options, const Text& text) {
    weftConfig_t settings = WEFT_CONFIG_INITIALIZER;
    if (options.deterministic) settings.deterministic = 1;
    weft::Communicator comm = weft::Communicator::from_environment(&settings);
    check_parts(options, comm.ranks());
    const bool prints = comm.rank() == 0;
    const Share share{comm.ranks(), comm.rank(), 1};
    const auto train = [&](auto& model, AdamW<Stored> optimizer, Hook* hook = nullptr) {
        Training<Stored> training(options, text, model, share, prints, std::move(optimizer));
        run_saved(options, training, comm, hook);
    };
    if (options.mode == "ddp") {
        weftTrainDdpConfig_t config = weft::train::ddp_config();
        Hook hook(options.hook, options.steps);
        hook.into(config);
        Replicated<Stored> model(options.shape, options.seed, comm, config);
        train(model, optimizer_for<Stored>(options, hook.of_lamb()), &hook);
    } else if (is_local(options.mode)) {
        Local model(options.shape, options.seed, comm, local_config(options.mode == "diloco", options.period));
        Training<float> training(options, text, model, share, prints, AdamW<float>());
        run_saved(options, training, comm);
    } else {
        Sharded<Stored> model(options.shape, options.seed, comm, sharding_of(options, comm.ranks()),
                              options.host_ranks);
        train(model, AdamW<Stored>(Offload{options.offload, &comm}));
    }
}

template <class Stored>
void trained(const Options& options) {
    const Text text(options.texts, options.shape.context);
    if (options.mode == "single") return trained_alone<Stored>(options, text);
    trained_together<Stored>(options, text);
}

}  // namespace
}  // namespace train

int main(int count, char** words) {
    try {
        const train::Options options = train::parsed(count, words);
        if (options.storage == "f32")
            train::trained<float>(options);
        else if (options.storage == "bf16")
            train::trained<train::Bfloat16>(options);
        else
            train::refuse("--storage " + options.storage + " is unknown");
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
