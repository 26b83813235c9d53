#include "src/schedule/schedule.hpp"

namespace weft {

const char* name_of(Opcode opcode) {
    switch (opcode) {
#define WEFT_INSTRUCTION(name, kind, uses, help) \
    case Opcode::name:                           \
        return #name;
#include "src/schedule/instruction.def"
#undef WEFT_INSTRUCTION
    }
    return "unknown instruction";
}

OpcodeKind kind_of(Opcode opcode) {
    switch (opcode) {
#define WEFT_INSTRUCTION(name, kind, uses, help) \
    case Opcode::name:                           \
        return OpcodeKind::kind;
#include "src/schedule/instruction.def"
#undef WEFT_INSTRUCTION
    }
    return OpcodeKind::local;
}

const char* uses_of(Opcode opcode) {
    switch (opcode) {
#define WEFT_INSTRUCTION(name, kind, uses, help) \
    case Opcode::name:                           \
        return uses;
#include "src/schedule/instruction.def"
#undef WEFT_INSTRUCTION
    }
    return "";
}

}  // namespace weft
