"""The parts of the judge: one module for each way in which samples or facts become a judgement. All pure."""
