// saved.hpp: checkpoints of a training: a folder with one checkpoint for each saved step, and the newest complete one.
#pragma once

#include "model.hpp"

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

// Saves and loads what a Model and its AdamW hold. All ranks make the calls in one order. Thread-bound.
class Saved {
  public:
    Saved(weft::Communicator& comm, const std::string& folder) : comm_(comm), folder_(folder), checkpoint_(comm) {}

    template <class Stored>
    void save(Model<Stored>& model, AdamW<Stored>& optimizer, Place place) {
        weftTrainItem_t item = WEFT_TRAIN_ITEM_INITIALIZER;
        item.name = "place";
        item.data = &place;
        item.bytes = sizeof place;
        const std::vector<Piece<Stored>> pieces = model.pieces();
        checkpoint_.save_in_background(name(place.steps), optimizer.boxes(pieces, model.boxes()), {item});
    }

    // Returns the steps that are done: 0 if the folder has no complete checkpoint. `now` is the place of this run.
    template <class Stored>
    int resume(Model<Stored>& model, AdamW<Stored>& optimizer, const Place& now) {
        const std::uint64_t steps = newest();
        if (steps == 0) return 0;
        const std::vector<Piece<Stored>> pieces = model.pieces();
        optimizer.prepare(pieces);
        checkpoint_.load(name(steps), optimizer.boxes(pieces, model.boxes()));
        const std::vector<unsigned char> item = checkpoint_.item("place");
        Place place;
        if (item.size() != sizeof place) throw std::runtime_error(name(steps) + " is of another program");
        std::memcpy(&place, item.data(), sizeof place);
        if (place.seed != now.seed || place.batch != now.batch || place.tokens != now.tokens)
            throw std::runtime_error(name(steps) + " is of a training with another --seed, --batch or text");
        optimizer.set_steps(pieces, place.steps);
        return int(place.steps);
    }

    // Until the last save is on the disk.
    void wait() { checkpoint_.wait(); }

  private:
    std::string name(std::uint64_t steps) const {
        const std::string digits = std::to_string(steps);
        return folder_ + "/step-" + std::string(digits.size() < 9 ? 9 - digits.size() : 0, '0') + digits;
    }

    // Rank 0 looks, so that all ranks load the same one. A folder with checkpoint.json is complete.
    std::uint64_t newest() {
        std::uint64_t steps = 0;
        std::error_code none;
        if (comm_.rank() == 0)
            for (const auto& entry : std::filesystem::directory_iterator(folder_, none)) {
                const std::string word = entry.path().filename().string();
                if (word.rfind("step-", 0) == 0 && std::filesystem::exists(entry.path() / "checkpoint.json", none))
                    steps = std::max<std::uint64_t>(steps, std::strtoull(word.c_str() + 5, nullptr, 10));
            }
        comm_.broadcast(&steps, 1, 0);
        return steps;
    }

    weft::Communicator& comm_;
    std::string folder_;
    weft::train::Checkpoint checkpoint_;
};

}  // namespace train
