// process.hpp: whether an object was made by this process or by the process that fork() copied.
#pragma once

namespace weft_torch {

// Called once, when the module is loaded.
void watch_forks();

// A member of an object that threads or communicators belong to.
class Origin {
  public:
    Origin();
    // The object is a copy in a child of fork(): its threads do not exist, and its communicator is the parent's.
    bool is_forked() const;

  private:
    unsigned forks_;
};

}  // namespace weft_torch
