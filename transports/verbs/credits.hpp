// credits.hpp: the numbers of released messages that receivers send to senders, in the header of a message in the other
// direction, or by a write of 0 bytes.
#pragma once
#include "transports/verbs/lanes/recovery.hpp"

namespace weft::internal::verbs {

// Of a link. Thread-bound to the thread that drives it.
class Credits {
  public:
    explicit Credits(LinkState& state) : state_(state) {}
    // A message of the connection was released.
    void note(Incoming& incoming) { last_ = &incoming; }
    // The header of this message, which is about to be posted, takes the credits of the last noted connection along.
    void add_to(Outgoing& of, uint64_t number);

    // The meaning of immediate data or a header. `sender` may go on; null: no news. `wrong`: the reason if it cannot be right.
    struct Taken {
        Outgoing* sender = nullptr;
        const char* wrong = nullptr;
    };
    Taken take(uint32_t word);

  private:
    LinkState& state_;
    Incoming* last_ = nullptr;
};

}  // namespace weft::internal::verbs
