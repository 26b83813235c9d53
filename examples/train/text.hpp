// text.hpp: the text that the model learns, as tokens, and the batches of each step.
#pragma once

#include "gpt.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace train {

// Tokens are the printable characters of ASCII, the end of a line, and one for everything else.
inline constexpr int vocabulary = 97;
inline int token_of(char letter) { return letter == '\n' ? 0 : letter >= ' ' && letter <= '~' ? letter - ' ' + 1 : 96; }

// A batch: the rows of `tokens`, and in `targets` the tokens that follow.
struct Batch {
    std::vector<int> tokens, targets;
};

// Immutable. Nine tenths are for training, the end is for validation.
class Text {
  public:
    // Files, and folders whose *.md are read in the order of their names.
    explicit Text(const std::vector<std::string>& paths, int context) : context_(context) {
        for (const std::string& path : paths) {
            std::vector<std::filesystem::path> files;
            if (std::filesystem::is_directory(path)) {
                for (const auto& entry : std::filesystem::directory_iterator(path))
                    if (entry.path().extension() == ".md") files.push_back(entry.path());
                std::sort(files.begin(), files.end());
            } else {
                files.emplace_back(path);
            }
            for (const auto& file : files) read(file);
        }
        training_ = tokens_.size() / 10 * 9;
        if (tokens_.size() < 20 * static_cast<std::size_t>(context + 1))
            throw std::runtime_error("the text is too short: name files or folders with more text");
    }

    std::size_t size() const { return tokens_.size(); }

    // Sequences `first` to first + count - 1 of the global batch of a step: the same for any number of ranks.
    Batch training(std::uint64_t seed, int step, int first, int count) const {
        Batch batch;
        const std::size_t places = training_ - context_;
        for (int i = first; i < first + count; ++i)
            append(batch, random_bits(seed, std::uint64_t(step) << 32 | 0xda7a, i) % places);
        return batch;
    }

    // `count` sequences that are spread evenly over the text for validation.
    Batch validation(int first, int count, int all) const {
        Batch batch;
        const std::size_t places = tokens_.size() - training_ - context_;
        for (int i = first; i < first + count; ++i) append(batch, training_ + places * i / all);
        return batch;
    }

  private:
    void read(const std::filesystem::path& path) {
        std::ifstream file(path, std::ios::binary);
        if (!file) throw std::runtime_error("the text " + path.string() + " cannot be read");
        for (std::istreambuf_iterator<char> letter(file), end; letter != end; ++letter)
            tokens_.push_back(token_of(*letter));
    }

    void append(Batch& batch, std::size_t place) const {
        const auto from = tokens_.begin() + static_cast<std::ptrdiff_t>(place);
        batch.tokens.insert(batch.tokens.end(), from, from + context_);
        batch.targets.insert(batch.targets.end(), from + 1, from + 1 + context_);
    }

    int context_;
    std::size_t training_ = 0;  // tokens
    std::vector<int> tokens_;
};

}  // namespace train
