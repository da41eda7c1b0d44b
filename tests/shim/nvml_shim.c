/* A small libnvidia-ml.so.1 for machines without a GPU, so that tests exercise the real pynvml.
 *
 * The file named by BERTH_NVML_SCENARIO is read again at every call, so a test can change the world under a running
 * process. One line per device, in the order of indices; NAME has "_" for spaces, "-" is an empty name:
 *
 *   device UUID NAME TOTAL_MIB USED_MIB UTILISATION [KEY=VALUE ...]
 *       error=GPU_IS_LOST          every call for this device fails so
 *       uuid_error= name_error= memory_error= memory_v2_error= utilisation_error=    that call fails
 *       hang_ms=N                  the first call for this device takes so long, or until the scenario says otherwise
 *   driver [init_error=X] [count_error=X] [hang_ms=N] [boot=N]
 *       boot=N                     the driver was loaded anew: calls fail until the library is shut down and started
 *
 * Errors are NVML's own names without NVML_ERROR_, or numbers. "#" begins a comment. A scenario that cannot be read is
 * a driver that is not loaded. Compiled with -DWITHOUT_MEMORY_V2 or -DWITHOUT_UTILISATION it lacks these functions, as
 * old drivers do. Nothing here is copied from NVIDIA; prototypes follow what pynvml passes.
 */

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_DEVICES 64
#define SUCCESS 0
#define UNINITIALIZED 1
#define INVALID_ARGUMENT 2
#define INSUFFICIENT_SIZE 7
#define DRIVER_NOT_LOADED 9
#define UNKNOWN 999

typedef int status;
typedef char *handle; /* points into `handles`; its offset is the index */

struct device {
    char uuid[96], name[96];
    unsigned long long total_mib, used_mib;
    unsigned int utilisation;
    long hang_ms;
    status error, uuid_error, name_error, memory_error, memory_v2_error, utilisation_error;
};

struct scenario {
    struct device devices[MAX_DEVICES];
    unsigned int count;
    status init_error, count_error;
    long hang_ms, boot;
};

static char handles[MAX_DEVICES];
static int initialised; /* times, as in NVML: only the first start reaches the driver, only the last stop leaves it */
static long booted;     /* of the driver that was there at the first start */

static const struct {
    const char *name, *words;
    status code;
} errors[] = {
    {"SUCCESS", "Success", 0},
    {"UNINITIALIZED", "Uninitialized", 1},
    {"INVALID_ARGUMENT", "Invalid Argument", 2},
    {"NOT_SUPPORTED", "Not Supported", 3},
    {"NO_PERMISSION", "Insufficient Permissions", 4},
    {"NOT_FOUND", "Not Found", 6},
    {"INSUFFICIENT_SIZE", "Insufficient Size", 7},
    {"DRIVER_NOT_LOADED", "Driver Not Loaded", 9},
    {"TIMEOUT", "Timeout", 10},
    {"FUNCTION_NOT_FOUND", "Function Not Found", 13},
    {"GPU_IS_LOST", "GPU is lost", 15},
    {"RESET_REQUIRED", "GPU requires reset", 16},
    {"LIB_RM_VERSION_MISMATCH", "Driver/library version mismatch", 18},
    {"NO_DATA", "No data", 21},
    {"ARGUMENT_VERSION_MISMATCH", "Argument version mismatch", 25},
    {"NOT_READY", "Not ready", 27},
    {"UNKNOWN", "Unknown Error", 999},
};
#define ERRORS (sizeof errors / sizeof *errors)

static status code_of(const char *name) {
    for (size_t i = 0; i < ERRORS; i++)
        if (strcmp(errors[i].name, name) == 0) return errors[i].code;
    char *end;
    long number = strtol(name, &end, 10);
    return *name != '\0' && *end == '\0' ? (status)number : UNKNOWN;
}

/* KEY=VALUE of a device line; what is misspelt makes the device fail, so that a test notices. */
static void option(struct device *device, const char *key, const char *value) {
    if (strcmp(key, "hang_ms") == 0) device->hang_ms = atol(value);
    else if (strcmp(key, "uuid_error") == 0) device->uuid_error = code_of(value);
    else if (strcmp(key, "name_error") == 0) device->name_error = code_of(value);
    else if (strcmp(key, "memory_error") == 0) device->memory_error = code_of(value);
    else if (strcmp(key, "memory_v2_error") == 0) device->memory_v2_error = code_of(value);
    else if (strcmp(key, "utilisation_error") == 0) device->utilisation_error = code_of(value);
    else device->error = strcmp(key, "error") == 0 ? code_of(value) : UNKNOWN;
}

static void driver_option(struct scenario *found, const char *key, const char *value) {
    if (strcmp(key, "hang_ms") == 0) found->hang_ms = atol(value);
    else if (strcmp(key, "boot") == 0) found->boot = atol(value);
    else if (strcmp(key, "count_error") == 0) found->count_error = code_of(value);
    else found->init_error = strcmp(key, "init_error") == 0 ? code_of(value) : UNKNOWN;
}

static void words_of(char *into, size_t size, const char *text) {
    snprintf(into, size, "%s", strcmp(text, "-") == 0 ? "" : text);
    for (char *sign = into; *sign; sign++)
        if (*sign == '_') *sign = ' ';
}

static void line_of(struct scenario *found, char *line) {
    char *rest = NULL, *word = strtok_r(line, " \t\r\n", &rest);
    if (word == NULL || *word == '#') return;
    struct device *device = NULL;
    if (strcmp(word, "device") == 0 && found->count < MAX_DEVICES) {
        device = &found->devices[found->count++];
        char *field[5];
        for (int i = 0; i < 5; i++)
            if ((field[i] = strtok_r(NULL, " \t\r\n", &rest)) == NULL) {
                device->error = UNKNOWN;
                return;
            }
        snprintf(device->uuid, sizeof device->uuid, "%s", strcmp(field[0], "-") == 0 ? "" : field[0]);
        words_of(device->name, sizeof device->name, field[1]);
        device->total_mib = strtoull(field[2], NULL, 10);
        device->used_mib = strtoull(field[3], NULL, 10);
        device->utilisation = (unsigned int)strtoul(field[4], NULL, 10);
    }
    while ((word = strtok_r(NULL, " \t\r\n", &rest)) != NULL) {
        char *value = strchr(word, '=');
        if (value == NULL) value = word + strlen(word);
        else *value++ = '\0';
        if (device != NULL) option(device, word, value);
        else driver_option(found, word, value);
    }
}

static status scenario_of(struct scenario *found) {
    memset(found, 0, sizeof *found);
    const char *path = getenv("BERTH_NVML_SCENARIO");
    FILE *file = path != NULL ? fopen(path, "r") : NULL;
    if (file == NULL) return DRIVER_NOT_LOADED;
    char line[1024];
    while (fgets(line, sizeof line, file) != NULL) line_of(found, line);
    fclose(file);
    return SUCCESS;
}

static void pause_ms(long duration) {
    struct timespec step = {duration / 1000, (duration % 1000) * 1000000L};
    nanosleep(&step, NULL);
}

/* What the scenario says of one device now. */
static status device_of(handle device, struct device *found) {
    if (!initialised) return UNINITIALIZED;
    ptrdiff_t index = device - handles;
    if (device == NULL || index < 0 || index >= MAX_DEVICES) return INVALID_ARGUMENT;
    struct scenario all;
    status result = scenario_of(&all);
    if (result != SUCCESS) return result;
    if (all.boot != booted) return UNKNOWN;
    if ((unsigned int)index >= all.count) return INVALID_ARGUMENT;
    *found = all.devices[index];
    return found->error;
}

static status text_of(const char *text, char *into, unsigned int size) {
    if (strlen(text) + 1 > size) return INSUFFICIENT_SIZE;
    strcpy(into, text);
    return SUCCESS;
}

status nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    struct scenario all;
    status result = scenario_of(&all);
    for (long waited = 0; result == SUCCESS && waited < all.hang_ms; waited += 10) {
        pause_ms(10);
        result = scenario_of(&all);
    }
    if (result == SUCCESS) result = all.init_error;
    if (result == SUCCESS && initialised++ == 0) booted = all.boot;
    return result;
}

status nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

status nvmlShutdown(void) {
    if (!initialised) return UNINITIALIZED;
    initialised--;
    return SUCCESS;
}

const char *nvmlErrorString(status code) {
    for (size_t i = 0; i < ERRORS; i++)
        if (errors[i].code == code) return errors[i].words;
    return "Unknown Error";
}

status nvmlDeviceGetCount_v2(unsigned int *count) {
    if (!initialised) return UNINITIALIZED;
    struct scenario all;
    status result = scenario_of(&all);
    if (result == SUCCESS) result = all.boot != booted ? UNKNOWN : all.count_error;
    if (result == SUCCESS) *count = all.count;
    return result;
}

status nvmlDeviceGetHandleByIndex_v2(unsigned int index, handle *device) {
    if (!initialised) return UNINITIALIZED;
    if (index >= MAX_DEVICES) return INVALID_ARGUMENT;
    struct device found;
    status result = device_of(&handles[index], &found);
    for (long waited = 0; result == SUCCESS && waited < found.hang_ms; waited += 10) {
        pause_ms(10);
        result = device_of(&handles[index], &found);
    }
    if (result == SUCCESS) *device = &handles[index];
    return result;
}

status nvmlDeviceGetUUID(handle device, char *uuid, unsigned int size) {
    struct device found;
    status result = device_of(device, &found);
    if (result == SUCCESS) result = found.uuid_error;
    return result == SUCCESS ? text_of(found.uuid, uuid, size) : result;
}

status nvmlDeviceGetName(handle device, char *name, unsigned int size) {
    struct device found;
    status result = device_of(device, &found);
    if (result == SUCCESS) result = found.name_error;
    return result == SUCCESS ? text_of(found.name, name, size) : result;
}

struct memory {
    unsigned long long total, free, used;
};

status nvmlDeviceGetMemoryInfo(handle device, struct memory *memory) {
    struct device found;
    status result = device_of(device, &found);
    if (result == SUCCESS) result = found.memory_error;
    if (result != SUCCESS) return result;
    memory->total = found.total_mib << 20;
    memory->used = found.used_mib << 20;
    memory->free = memory->total > memory->used ? memory->total - memory->used : 0;
    return SUCCESS;
}

#ifndef WITHOUT_MEMORY_V2
struct memory_v2 {
    unsigned int version;
    unsigned long long total, reserved, free, used;
};

status nvmlDeviceGetMemoryInfo_v2(handle device, struct memory_v2 *memory) {
    struct device found;
    status result = device_of(device, &found);
    if (result == SUCCESS) result = found.memory_v2_error != SUCCESS ? found.memory_v2_error : found.memory_error;
    if (result != SUCCESS) return result;
    if (memory->version != (sizeof *memory | 2u << 24)) return code_of("ARGUMENT_VERSION_MISMATCH");
    memory->total = found.total_mib << 20;
    memory->used = found.used_mib << 20;
    memory->reserved = 0;
    memory->free = memory->total > memory->used ? memory->total - memory->used : 0;
    return SUCCESS;
}
#endif

#ifndef WITHOUT_UTILISATION
struct utilisation {
    unsigned int gpu, memory;
};

status nvmlDeviceGetUtilizationRates(handle device, struct utilisation *rates) {
    struct device found;
    status result = device_of(device, &found);
    if (result == SUCCESS) result = found.utilisation_error;
    if (result != SUCCESS) return result;
    rates->gpu = found.utilisation;
    rates->memory = 0;
    return SUCCESS;
}
#endif
