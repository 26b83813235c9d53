// saved.hpp: checkpoints of a training: a folder with one checkpoint for each saved step, and the newest complete one.
#pragma once

#include "hooks.hpp"
#include "model.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace train {

// The place in the training. The batch of a step depends on these numbers alone, so they are the state of the random
// generator and of the sampler.
struct Place {
    std::uint64_t steps = 0;  // that are done
    std::uint64_t seed = 0, batch = 0, tokens = 0;
};

// Saves and loads the state of a Model, its AdamW and its Hook. All ranks make the calls in one order. Thread-bound.
class Saved {
  public:
    // keep  so many of the newest checkpoints; 0: all
    Saved(weft::Communicator& comm, const std::string& folder, int keep)
        : comm_(comm), folder_(folder), keep_(keep), checkpoint_(comm) {}
    // Before the other calls: the hook, if there is one, outlives this object.
    void set_hook(Hook& hook) { hook_ = &hook; }

    template <class Stored>
    void save(Model<Stored>& model, AdamW<Stored>& optimizer, Place place) {
        const std::vector<Piece<Stored>> pieces = model.pieces();
        const std::vector<double> trust = optimizer.trust(pieces);
        const std::vector<unsigned char> unsent = hook_ ? hook_->state() : std::vector<unsigned char>();
        checkpoint_.save_in_background(name(place.steps), optimizer.boxes(pieces, model.boxes()),
                                       {item("place", &place, sizeof place, false),
                                        item("trust", trust.data(), trust.size() * sizeof(double), false),
                                        item("hook", unsent.data(), unsent.size(), true)});
        remove_old();  // the save before this one has ended
    }

    // Returns the steps that are done: 0 if the folder has no complete checkpoint. `now` is the place of this run.
    template <class Stored>
    int resume(Model<Stored>& model, AdamW<Stored>& optimizer, const Place& now, int momentum_from) {
        const std::uint64_t steps = newest();
        if (steps == 0) return 0;
        model.resume_at(int(steps));
        const std::vector<Piece<Stored>> pieces = model.pieces();
        optimizer.prepare(pieces, steps, momentum_from);
        checkpoint_.load(name(steps), optimizer.boxes(pieces, model.boxes()));
        const std::vector<unsigned char> stored = checkpoint_.item("place"), trust = checkpoint_.item("trust");
        Place place;
        if (stored.size() != sizeof place) throw std::runtime_error(name(steps) + " is of another program");
        std::memcpy(&place, stored.data(), sizeof place);
        if (place.seed != now.seed || place.batch != now.batch || place.tokens != now.tokens)
            throw std::runtime_error(name(steps) + " is of a training with another --seed, --batch or text");
        optimizer.loaded(pieces, place.steps);
        std::vector<double> ratios(trust.size() / sizeof(double));
        if (!ratios.empty()) std::memcpy(ratios.data(), trust.data(), trust.size());
        optimizer.set_trust(pieces, ratios);
        // Of another number of ranks nothing can be used: unsent gradients are lost.
        if (hook_ && checkpoint_.ranks() == comm_.ranks()) hook_->set_state(checkpoint_.item("hook", comm_.rank()));
        return int(place.steps);
    }

    // Until the last save is on the disk.
    void wait() {
        checkpoint_.wait();
        remove_old();
    }

  private:
    std::string name(std::uint64_t steps) const {
        const std::string digits = std::to_string(steps);
        return folder_ + "/step-" + std::string(digits.size() < 9 ? 9 - digits.size() : 0, '0') + digits;
    }

    static weftTrainItem_t item(const char* name, const void* data, std::size_t bytes, bool own) {
        weftTrainItem_t item = WEFT_TRAIN_ITEM_INITIALIZER;
        item.name = name;
        item.data = data;
        item.bytes = bytes;
        item.perRank = own ? 1 : 0;
        return item;
    }

    // The complete checkpoints of the folder, the newest one first. A folder with checkpoint.json is complete.
    std::vector<std::uint64_t> complete() const {
        std::vector<std::uint64_t> steps;
        std::error_code none;
        for (const auto& entry : std::filesystem::directory_iterator(folder_, none)) {
            const std::string word = entry.path().filename().string();
            if (word.rfind("step-", 0) == 0 && std::filesystem::exists(entry.path() / "checkpoint.json", none))
                steps.push_back(std::strtoull(word.c_str() + 5, nullptr, 10));
        }
        std::sort(steps.rbegin(), steps.rend());
        return steps;
    }

    // Not while a rank loads: all ranks have loaded before the first save.
    void remove_old() const {
        if (comm_.rank() != 0 || keep_ == 0) return;
        const std::vector<std::uint64_t> steps = complete();
        std::error_code none;
        for (std::size_t i = std::size_t(keep_); i < steps.size(); ++i) {
            std::filesystem::remove(name(steps[i]) + "/checkpoint.json", none);  // so that half of it is not complete
            std::filesystem::remove_all(name(steps[i]), none);
        }
    }

    // Rank 0 looks, so that all ranks load the same one.
    std::uint64_t newest() {
        std::uint64_t steps = 0;
        if (comm_.rank() == 0)
            if (const std::vector<std::uint64_t> all = complete(); !all.empty()) steps = all.front();
        comm_.broadcast(&steps, 1, 0);
        return steps;
    }

    weft::Communicator& comm_;
    std::string folder_;
    int keep_;
    Hook* hook_ = nullptr;
    weft::train::Checkpoint checkpoint_;
};

}  // namespace train
