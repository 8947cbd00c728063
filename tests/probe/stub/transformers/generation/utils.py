import time


class GenerationMixin:
    def generate(self, pause):
        time.sleep(pause)
