// fd.hpp: owner of one file descriptor.
#pragma once
#include <unistd.h>

#include <utility>

namespace weft {

class Fd {
  public:
    Fd() = default;
    explicit Fd(int number) : number_(number) {}
    Fd(Fd&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Fd& operator=(Fd&& other) noexcept {
        Fd old(std::exchange(number_, std::exchange(other.number_, -1)));
        return *this;
    }
    ~Fd() {
        if (number_ >= 0) close(number_);
    }
    int number() const { return number_; }
    explicit operator bool() const { return number_ >= 0; }
    void reset() { *this = Fd(); }
    // Somebody else's from here on.
    int release() { return std::exchange(number_, -1); }

  private:
    int number_ = -1;
};

}  // namespace weft
