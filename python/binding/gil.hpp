// gil.hpp: releases the GIL around blocking calls, so that no thread unwinds this module's frames at the interpreter's
// end. Python 3.13 and older end a thread that asks for the GIL then, as pthread_exit does.
#pragma once
#include <Python.h>

namespace weft::python {

// Call it when the module is imported, with Python's main thread.
void prepare_gil(unsigned long main_thread);
bool is_main_thread();

// A thread inside this module with the GIL, or on its way to it. end_gil() waits for the end of the frame.
class Frame {
  public:
    Frame();
    Frame(const Frame&) = delete;
    ~Frame();
};

// Releases the GIL, within a Frame. If end_gil() was called, threads other than the main one stay in the destructor.
class Unlocked {
  public:
    Unlocked();
    Unlocked(const Unlocked&) = delete;
    ~Unlocked();

  private:
    PyThreadState* state_;
};

// Takes the GIL in a thread that Python may not know, as a Frame. It is false if end_gil() was called.
class Locked {
  public:
    Locked();
    Locked(const Locked&) = delete;
    ~Locked();
    explicit operator bool() const { return locked_; }

  private:
    bool locked_;
    PyGILState_STATE state_{};
};

// Keeps all threads but the main one from taking the GIL here. Needs the GIL. Waits at most a second for other frames.
void end_gil();

}  // namespace weft::python
